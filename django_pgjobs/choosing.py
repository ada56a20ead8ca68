"""Which of the jobs that may start a claim takes: priorities, turns, limits, tokens.

What may start is listed by the database (list_heads.sql), lane by lane, with all that limits it.
This module decides between the lanes. It knows no clock and no database. `explain()` asks it what
keeps one job, whose lane explain_lane.sql lists in the same way.

*Order.* The best rank goes first (minus the priority, less the boost of the queue). Within a rank
lanes take turns, each with as many jobs as its weight, up to its share of the batch; jobs without
keys come from the oldest on, one for one with the others. If there are lanes with keys, so for each
kind of jobs, and the kinds take turns as well.

*Limits.* A job is left out while its key, its queue or the tokens of its rate limits do not let it
start beside what was chosen before it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple


class Rooms(NamedTuple):
    """How many jobs there is room for, by kind: in threads, and on the event loop.

    The kind of a job, *is_async*, is the index.
    """

    threads: int
    loop: int


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit that a lane's jobs take tokens of."""

    key: str
    tokens: int


class Head(NamedTuple):
    """The first jobs of one lane, oldest first; *lane* is None for jobs without keys."""

    backend: str
    queue_name: str
    rank: int
    lane: str | None = None
    concurrency_key: str | None = None
    weight: int = 1
    # How many jobs of the key may run at a time; None: as each job says.
    max_running: int | None = None
    running: int = 0
    ids: Sequence[int] = ()
    limits: Sequence[int | None] = ()
    costs: Sequence[int] = ()
    # How many more jobs of the queue may start; None: any number.
    queue_room: int | None = None
    # Does it run on an event loop, as its row says?
    is_async: bool = False
    rates: Sequence[Rate] = ()


class Candidate(NamedTuple):
    """One job of a lane, by its place in it."""

    head: Head
    place: int

    @property
    def id(self) -> int:
        return self.head.ids[self.place]

    @property
    def cost(self) -> int:
        """How many tokens it takes of each of its rate limits."""
        return self.head.costs[self.place]

    @property
    def max_running(self) -> int:
        """How many jobs of its key may run for it to start."""
        return self.head.max_running or max(1, self.head.limits[self.place] or 1)


class Obstacle(NamedTuple):
    """What does not let a job start: "key_full", "queue_full" or "rate_limit"; of which one."""

    code: str
    name: str


@dataclass(slots=True)
class Choice:
    """The jobs to claim, best first, and what they leave of the limits."""

    # How many more of each kind.
    _left: list[int]
    # How many more of each queue that has a limit.
    _room: dict[str, int]
    jobs: list[Candidate] = field(default_factory=list)
    _of_key: Counter[str] = field(default_factory=Counter)
    _tokens: dict[str, int] = field(default_factory=dict)

    @classmethod
    def among(cls, heads: Sequence[Head], *, slots: Mapping[str, int], rooms: Rooms) -> Choice:
        """Return a choice in which nothing is chosen yet."""
        choice = cls(list(rooms), dict(slots))
        for head in heads:
            if head.queue_room is not None:
                room = choice._room.get(head.queue_name, head.queue_room)
                choice._room[head.queue_name] = min(head.queue_room, room)
            for rate in head.rates:
                choice._tokens[rate.key] = rate.tokens
        return choice

    def obstacles(self, job: Candidate) -> list[Obstacle]:
        """Return what does not let the job start beside those that were chosen."""
        head, key = job.head, job.head.concurrency_key
        found = []
        if key is not None and head.running + self._of_key.get(key, 0) >= job.max_running:
            found.append(Obstacle("key_full", key))
        if self._room.get(head.queue_name, 1) <= 0:
            found.append(Obstacle("queue_full", head.queue_name))
        for rate in head.rates:
            if self._tokens[rate.key] < job.cost:
                found.append(Obstacle("rate_limit", rate.key))
        return found

    def take(self, job: Candidate) -> bool:
        """Choose the job if everything lets it start; return whether it does."""
        head = job.head
        if not self._left[head.is_async]:
            return False
        obstacles = self.obstacles(job)
        if obstacles:
            if all(obstacle.code == "rate_limit" for obstacle in obstacles):
                # A cheaper job that follows is not to take what this one waits for.
                self._tokens |= {obstacle.name: 0 for obstacle in obstacles}
            return False
        self.jobs.append(job)
        self._left[head.is_async] -= 1
        if head.queue_name in self._room:
            self._room[head.queue_name] -= 1
        if head.concurrency_key is not None:
            self._of_key[head.concurrency_key] += 1
        for rate in head.rates:
            self._tokens[rate.key] -= job.cost
        return True


def choose(
    heads: Sequence[Head], *, wanted: int, slots: Mapping[str, int], rooms: Rooms
) -> list[Candidate]:
    """Choose up to *wanted* jobs of what is listed, best first.

    Of a queue in *slots* no more than it says, and of each kind no more than it has *rooms*.
    """
    choice = Choice.among(heads, slots=slots, rooms=rooms)
    by_rank: dict[int, list[Head]] = {}
    for head in heads:
        by_rank.setdefault(head.rank, []).append(head)
    for _, of_rank in sorted(by_rank.items()):
        keyed = [head for head in of_rank if head.lane is not None]
        plain = [head for head in of_rank if head.lane is None]
        sources = deque(
            _in_turns(heads, room) for heads, room in zip(_by_kind(keyed), rooms, strict=True)
        )
        # Beside lanes with keys, older jobs of one kind would cost those of the other their turns.
        # Without them the oldest go first, as in claim_jobs.sql.
        sources.extend(_oldest_first(heads) for heads in (_by_kind(plain) if keyed else [plain]))
        while sources and len(choice.jobs) < wanted:
            source = sources.popleft()
            # Up to the first that may start.
            if next(filter(choice.take, source), None):
                sources.append(source)
    return choice.jobs


def _by_kind(heads: Sequence[Head]) -> list[list[Head]]:
    return [[head for head in heads if head.is_async == kind] for kind in (False, True)]


def obstacles_of(head: Head) -> list[Obstacle]:
    """Return what does not let the last job of a lane start, were there no others.

    All of a lane is judged by its first job: what does not let that one start counts as well.
    """
    choice = Choice.among([head], slots={}, rooms=Rooms(1, 1))
    jobs = list(candidates_of(head))
    return list(dict.fromkeys([*choice.obstacles(jobs[0]), *choice.obstacles(jobs[-1])]))


def _in_turns(heads: Sequence[Head], wanted: int) -> Iterator[Candidate]:
    """Yield the jobs of lanes that take turns, each with as many as its weight.

    No lane gives more than its share of the batch, however little the others have.
    """
    weights = sum(head.weight for head in heads)
    waiting = deque((head, 0) for head in heads)
    while waiting:
        head, place = waiting.popleft()
        most = min(len(head.ids), ceil(wanted * head.weight / weights))
        end = min(place + head.weight, most)
        for each in range(place, end):
            yield Candidate(head, each)
        if end < most:
            waiting.append((head, end))


def _oldest_first(heads: Sequence[Head]) -> Iterator[Candidate]:
    return iter(
        sorted((job for head in heads for job in candidates_of(head)), key=lambda job: job.id)
    )


def candidates_of(head: Head) -> Iterator[Candidate]:
    """Return the jobs of a lane, oldest first."""
    return (Candidate(head, place) for place in range(len(head.ids)))
