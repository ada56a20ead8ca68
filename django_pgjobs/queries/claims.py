"""Statements of the claim: where jobs are, and taking them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from django_pgjobs.choosing import Candidate, Head, Rate, Rooms
from django_pgjobs.queries.arrays import array_text, columns_of, text_array_text
from django_pgjobs.queries.cursor import Cursor, execute


class Lane(NamedTuple):
    """The waiting jobs without keys of one queue of one backend alias and of one kind.

    The kind is what their rows say of threads or event loop.
    """

    backend: str
    queue_name: str
    is_async: bool = False


class Floor(NamedTuple):
    """A position in a lane's index order: minus the priority, then the id."""

    urgency: int
    id: int


# Before and behind all jobs.
HEAD = Floor(-32768, 0)
TAIL = Floor(32768, 0)

# A claim looks at so many jobs of each lane at least, if it wants so many.
FEW_JOBS = 4

# The most lanes of a place of which a look asks when their tokens are there: 0.1 s, if each has
# used a hundred tokens.
TOKEN_LANES = 1_000


class ClaimedRow(NamedTuple):
    """What claim_jobs.sql returns of one job; *lane* is None for a job without keys.

    *undeclared* is None unless the row may lack what the task declares (see `filling`);
    *scheduled* is JSON of the schedule and its occurrence, None for other jobs. *asked_at* is when
    the claim was sent, by `time.monotonic()`: before the server read its clock.
    """

    id: int
    claim: int
    attempts: int
    max_attempts: int | None
    lost_count: int
    max_losses: int | None
    interruptions: int
    timeout: float | None
    priority: int
    backend: str
    queue_name: str
    task_path: str
    args: str
    kwargs: str
    waited: float
    detail: str | None
    correlation_id: str = ""
    expires_in: float | None = None
    lane: str | None = None
    undeclared: str | None = None
    batch_id: int | None = None
    scheduled: str | None = None
    is_async: bool = False
    asked_at: float = 0.0


def lane_of(row: ClaimedRow) -> Lane:
    """Return the lane without keys that a job comes from."""
    return Lane(row.backend, row.queue_name, row.is_async)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """The worker that claims, what it leaves alone, and what of the rows it wants to see."""

    worker_id: int
    worker_name: str
    passed_over_paths: list[str]
    detailed: bool
    detailed_paths: list[str]
    passed_over: list[int] = field(default_factory=list)
    # Tasks that declare when their jobs start: a row that may lack that is not run by its claim.
    declaring_paths: list[str] = field(default_factory=list)
    # Else jobs with rate limits are left alone.
    takes_tokens: bool = True

    def params(self) -> dict[str, Any]:
        """Return what the statements of a claim are told of the worker."""
        return {
            "worker_id": self.worker_id,
            "worker_name": self.worker_name,
            "passed_over_paths": text_array_text(self.passed_over_paths),
            "passed_over": array_text(self.passed_over),
            "detailed": self.detailed,
            "detailed_paths": text_array_text(self.detailed_paths),
        }


def send_claim(
    cursor: Cursor,
    floors: Mapping[Lane, Floor],
    *,
    rooms: Rooms,
    max_jobs: int,
    taker: Taker,
    ends: Sequence[Floor] = (TAIL, TAIL),
    skips_locked: bool = False,
) -> None:
    """Send the claim of jobs without keys, from each lane's floor on, up to the end of its kind.

    Of each kind as many as it has room for, and *max_jobs* at most. The lanes that begin first are
    best named first. With *skips_locked* jobs that others have locked give no lane a share, at the
    price of more locks. Those of the detailed paths, or all, come with their whole row.
    """
    params = taker.params() | floors_params(floors)
    if _is_shared(floors, rooms, max_jobs):
        params["lane_jobs"] = array_text(rooms[lane.is_async] for lane in floors)
        execute(cursor, "claim_jobs", params)
        return
    urgencies, ids = columns_of(ends, 2)
    params |= {
        "lane_jobs": array_text(_looks(floors, [min(room, max_jobs) for room in rooms])),
        "rooms": array_text(rooms),
        "end_urgencies": array_text(urgencies),
        "end_ids": array_text(ids),
        "max_jobs": max_jobs,
        "skips_locked": skips_locked,
    }
    execute(cursor, "claim_lanes", params)


def _looks(lanes: Iterable[Lane], wanted: Sequence[int]) -> Iterator[int]:
    """Yield how many jobs of each lane to look at: of the n-th of a kind an n-th of the batch.

    So a deep lane fills a batch, as do many of few jobs, and of 500 deep lanes no more than seven
    batches are looked at. One job more shows where the lane goes on.
    """
    places = Counter[bool]()
    for lane in lanes:
        room = wanted[lane.is_async]
        places[lane.is_async] += 1
        yield min(room, max(room // places[lane.is_async], FEW_JOBS)) + 1


def _is_shared(lanes: Iterable[Lane], rooms: Rooms, max_jobs: int) -> bool:
    """Is it known how many jobs each lane is to give, because it is the only one of its kind?"""
    kinds = [lane.is_async for lane in lanes]
    return len(kinds) == len(set(kinds)) and sum(rooms[kind] for kind in kinds) <= max_jobs


def floors_params(floors: Mapping[Lane, Floor]) -> dict[str, str]:
    """Return the parameters for the lanes without keys."""
    backends, queues, asyncs = columns_of(floors, 3)
    urgencies, ids = columns_of(floors.values(), 2)
    return {
        "lane_backends": text_array_text(backends),
        "lane_queues": text_array_text(queues),
        "lane_asyncs": array_text(asyncs),
        "floor_urgencies": array_text(urgencies),
        "floor_ids": array_text(ids),
    }


class Group(NamedTuple):
    """The waiting jobs with keys of one queue, kind and priority, whose negative *urgency* is."""

    backend: str
    queue_name: str
    urgency: int
    is_async: bool = False


class Segment(NamedTuple):
    """A stretch of a group's lanes: from one on, and up to another (None: all that follow)."""

    group: Group
    first_lane: str = ""
    last_lane: str | None = None

    @classmethod
    def behind(cls, group: Group, lane: str) -> Segment:
        """Return all lanes that follow *lane*: no text lies between it and itself with "\\x01"."""
        return cls(group, f"{lane}\x01")

    @classmethod
    def single(cls, group: Group, lane: str) -> Segment:
        """Return *lane* and no other."""
        return cls(group, lane, lane)

    @classmethod
    def in_turn(cls, group: Group, cursor: str) -> list[Segment]:
        """Return all lanes of a group, those behind *cursor* first; "" is before all of them."""
        return [cls.behind(group, cursor), cls(group, "", cursor)] if cursor else [cls(group)]

    @property
    def is_single(self) -> bool:
        return self.first_lane == self.last_lane


def send_hold(cursor: Cursor, *, waits: bool = False) -> None:
    """Send the wish to be the one that claims jobs with keys; there is a row if it is granted.

    With *waits* it is granted when whoever has it commits.
    """
    execute(cursor, "await_keyed_claim" if waits else "hold_keyed_claim", {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a claim with keys is to choose from, and how much of it."""

    floors: Mapping[Lane, Floor]
    segments: Sequence[Segment]
    # What is added to the priorities of a queue.
    boosts: Mapping[str, int]
    # How many jobs of a queue the worker takes at most.
    slots: Mapping[str, int]
    # How many of each kind, and in all.
    rooms: Rooms
    max_jobs: int
    # Are jobs of lanes without keys left out that others have locked?
    skips_locked: bool = False


def send_heads(cursor: Cursor, scope: Scope, taker: Taker) -> None:
    """Send the question what a claim may choose from.

    `send_hold` goes before it, where it asks for keys or limited queues.
    """
    params = taker.params() | floors_params(scope.floors)
    params |= segments_params(scope.segments, scope.boosts)
    params |= {
        "lane_boosts": array_text(scope.boosts.get(lane.queue_name, 0) for lane in scope.floors),
        "full_queues": text_array_text(queue for queue, jobs in scope.slots.items() if jobs <= 0),
        "rooms": array_text(scope.rooms),
        "first_jobs": max(1, max(scope.rooms) // 50),
        "takes_tokens": taker.takes_tokens,
        "skips_locked": scope.skips_locked,
    }
    execute(cursor, "list_heads", params)


def heads_of(rows: Iterable[Any]) -> list[Head]:
    """Return what list_heads.sql lists."""
    return [
        Head._make(
            (
                *lane,
                limits or (),
                costs or (),
                queue_room,
                is_async,
                [rate_of(*rate) for rate in json.loads(rates)] if rates else (),
            )
        )
        for *lane, limits, costs, queue_room, is_async, rates in rows
    ]


def rate_of(key: str, tokens: int | None) -> Rate:
    """Return a rate limit; one without a row, or whose state is being made, has no tokens."""
    return Rate(key, tokens or 0)


def send_chosen_claim(
    cursor: Cursor, chosen: Sequence[Candidate], scope: Scope, taker: Taker
) -> None:
    """Send the claim of what was chosen; of lanes without keys only how many is said."""
    keyed = [job for job in chosen if job.head.lane is not None]
    plain = Counter(
        Lane(job.head.backend, job.head.queue_name, job.head.is_async)
        for job in chosen
        if job.head.lane is None
    )
    params = taker.params() | floors_params({lane: scope.floors[lane] for lane in plain})
    params |= {
        "lane_jobs": array_text(plain.values()),
        "chosen_ids": array_text(job.id for job in keyed),
        "chosen_lanes": text_array_text(job.head.lane for job in keyed),
    }
    execute(cursor, "claim_chosen", params)


def send_spending(cursor: Cursor, chosen: Sequence[Candidate], taker: Taker) -> None:
    """Send, behind the claim of what was chosen, what its jobs cost; nothing if nothing does."""
    tokens = [(job, rate) for job in chosen for rate in job.head.rates]
    if tokens:
        params = {
            "worker_id": taker.worker_id,
            "declaring_paths": text_array_text(taker.declaring_paths),
            "token_ids": array_text(job.id for job, _ in tokens),
            "token_keys": text_array_text(rate.key for _, rate in tokens),
            "token_costs": array_text(job.cost for job, _ in tokens),
        }
        execute(cursor, "spend_tokens", params)


def send_first_free(cursor: Cursor, ids: Sequence[int]) -> None:
    """Send the question which of these jobs is the first that nobody has locked.

    The row is its id and its task_path.
    """
    execute(cursor, "find_free_job", {"ids": list(ids)})


def segments_params(segments: Sequence[Segment], boosts: Mapping[str, int]) -> dict[str, str]:
    """Return the parameters for the lanes of jobs with keys."""
    groups, first_lanes, last_lanes = columns_of(segments, 3)
    backends, queues, urgencies, asyncs = columns_of(groups, 4)
    return {
        "segment_backends": text_array_text(backends),
        "segment_queues": text_array_text(queues),
        "segment_asyncs": array_text(asyncs),
        "segment_urgencies": array_text(urgencies),
        "segment_boosts": array_text(boosts.get(queue, 0) for queue in queues),
        "first_lanes": text_array_text(first_lanes),
        "last_lanes": text_array_text(last_lanes),
    }


def claimed_rows(rows: list[Any], asked_at: float) -> list[ClaimedRow]:
    """Return what a claim took that was sent at *asked_at*, best priority first, oldest first."""
    claimed = [ClaimedRow._make((*row, asked_at)) for row in rows if row[0] is not None]
    # The second sort leaves those of a priority as they are.
    claimed.sort(key=attrgetter("id"))
    claimed.sort(key=attrgetter("priority"), reverse=True)
    return claimed


def shares_of(rows: list[Any], lanes: Iterable[Lane]) -> tuple[int, dict[Lane, Floor] | None]:
    """Return how many jobs a claim was to take, and where lanes have more than it was to take.

    (0, None): the claim does not tell; it tells if it had to choose between lanes of a kind.
    """
    if not rows or rows[-1][0] is not None:
        return 0, None
    numbered = dict(enumerate(lanes, 1))
    jobs, floors = json.loads(ClaimedRow._make((*rows[-1], 0.0)).detail or "[0, null]")
    return jobs or 0, {numbered[nth]: Floor(*floor) for nth, *floor in floors or ()}


class ReadyPlace(NamedTuple):
    """A row of list_ready_lanes.sql; jobs without keys have no *urgency*, and begin at *first*."""

    backend: str
    queue_name: str
    urgency: int | None
    is_async: bool
    lowest: int
    boost: int
    is_limited: bool
    first_urgency: int | None = None
    first_id: int | None = None

    @property
    def head(self) -> Floor:
        """Where it begins."""
        if self.first_urgency is None or self.first_id is None:
            return HEAD
        return Floor(self.first_urgency, self.first_id)


def send_lane_listing(cursor: Cursor, *, with_lowest: bool = False) -> None:
    """Send the question where jobs may be claimed, and what is lowest there; rows: ReadyPlace."""
    execute(cursor, "list_ready_lanes", {"with_lowest": with_lowest})


def send_token_wait(cursor: Cursor) -> None:
    """Send the question in how many seconds jobs that wait for tokens have enough of them.

    Each row is the parts of a Group, and the seconds until the first of its jobs has.
    """
    execute(cursor, "get_token_wait", {"max_lanes": TOKEN_LANES})


def send_key_wakeup(cursor: Cursor, *, channel: str, lanes: Iterable[str]) -> None:
    """Send a notification of idle workers, if jobs wait that the end of others lets start."""
    keys = sorted({lane.partition("\n")[0] for lane in lanes} - {""})
    execute(cursor, "wake_for_keys", {"channel": channel, "keys": keys})
