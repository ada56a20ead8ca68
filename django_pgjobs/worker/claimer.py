"""What to claim next: how many jobs, from which lanes, and from where in each.

**Floors.** While a transaction anywhere in the database holds an old snapshot, dead index
entries cannot be removed, and a scan from the head of the queue wades through all jobs that
ran since. So each lane is read from the position where the last batch ended, its floor. Jobs
that appear below a floor (a higher priority, a retry) are found by a scan from the head, which
follows when a batch comes back short and otherwise every HEAD_SCAN_SECONDS; but scans that have
become slow are made so rarely that they take a tenth of the time at most.

**Keys.** Jobs with keys are claimed by a longer statement that walks their lanes. It is sent only
when it may find something: after a walk that did, when a job with a key ended, and with every
scan from the heads. In each group of lanes (a queue, a priority) it goes on behind the lane that
was served last, so that all take turns. Walks take a fifth of the time at most; in between, the
lanes whose jobs ended here are looked at and no others.

**Ageing.** If the project wants it, one claim in so many seconds begins at the lowest priorities.

**Prefetch.** Beyond what its free slots take, a worker claims what it expects to run within
PREFETCH_SECONDS, so that short jobs do not wait for round trips and long ones are not hoarded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from django_pgjobs.queries.claims import (
    HEAD,
    ClaimedRow,
    Floor,
    Group,
    Lane,
    Ready,
    Scope,
    Segment,
)
from django_pgjobs.worker.event_loop import AsyncSlots
from django_pgjobs.worker.executor import Slots
from django_pgjobs.worker.state import WorkerState

PREFETCH_SECONDS = 0.05
# Measured: docs/performance.md#batch-size.
MAX_PREFETCH = 1_000
HEAD_SCAN_SECONDS = 1.0
# After a scan of d seconds there is none for this many times d.
SCAN_PAUSE_FACTOR = 9
WALK_PAUSE_FACTOR = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """What one claim is to read, and up to where."""

    wanted: int
    from_heads: bool
    floors: dict[Lane, Floor]
    segments: list[Segment]
    boosts: dict[str, int]
    caps: dict[str, int]
    is_keyed: bool
    holds: bool
    # It begins at the lowest priorities, and moves neither floors nor cursors.
    lifts: bool = False

    @property
    def scope(self) -> Scope:
        """Return what the claim is to choose from, if it has to choose."""
        return Scope(
            floors=self.floors,
            segments=self.segments,
            boosts=self.boosts,
            slots=self.caps,
            max_jobs=self.wanted,
        )

    @property
    def walks(self) -> bool:
        """Is it to look at all lanes with keys?"""
        return bool(self.segments) and not self.segments[0].is_single


class Claimer:
    """Decides each claim from what is free, what is known, and what came of the last one."""

    def __init__(self, state: WorkerState, slots: Slots, async_slots: AsyncSlots) -> None:
        self._state = state
        self._slots = slots
        self._async_slots = async_slots
        self._floors: dict[Lane, Floor] = {}
        self._lanes: set[Lane] = set()
        self._groups: set[Group] = set()
        # The lane of each group that was served last.
        self._cursors: dict[Group, str] = {}
        self._boosts: dict[str, int] = {}
        self._limited: set[str] = set()
        # Minus the lowest priority of each lane, for the claims that begin there.
        self._lowest: dict[Lane, int] = {}
        # Did the last claim that read lanes without keys find any?
        self._finds_plain = True
        self._lift_due = time.monotonic() + (state.options.ageing or 0.0)
        self._walk_is_due = False
        self._walk_allowed_at = 0.0
        # Lanes of which a job ended here.
        self._freed: set[Segment] = set()
        self._scan_due = 0.0
        # No scan from the heads before this time.
        self.scan_allowed_at = 0.0

    @property
    def prefetch(self) -> int:
        """How many jobs to hold beyond what the free slots take."""
        mean = self._slots.mean_duration
        concurrency = self._slots.most
        if mean is None or self._all_slots_are_long():
            return 0
        return min(MAX_PREFETCH, int(concurrency * PREFETCH_SECONDS / max(mean, 1e-6)))

    @property
    def low_water(self) -> int:
        """With as many jobs buffered or fewer, it is time to claim again."""
        return self.prefetch // 2

    def buffered(self) -> int:
        """Return how many claimed jobs nothing has begun to run."""
        return len(self._slots.buffer) + len(self._async_slots.buffer)

    def wanted(self, *, waits: bool = False) -> int:
        """Return how many jobs to claim now, 0 for none.

        If the claim *waits* for its turn, the jobs in the buffer will have run by then.
        """
        if self._state.stopping or self._state.quiet or self._async_slots.buffer:
            return 0
        buffered = len(self._slots.buffer)
        if buffered > self.low_water:
            return 0
        free = self._slots.most - len(self._slots.running)
        wanted = max(0, free + self.prefetch - (0 if waits else buffered))
        limit = self._state.options.max_jobs
        if limit is not None:
            wanted = min(wanted, limit - self._state.finished_jobs - len(self._state.held))
        return max(0, wanted)

    def head_scan_is_due(self) -> bool:
        """Is it time to ask which lanes have jobs, and to read them from their heads?"""
        return time.monotonic() >= max(self._scan_due, self.scan_allowed_at)

    def request_head_scan(self) -> None:
        """Let the next claim that may do so read from the heads of the lanes."""
        self._scan_due = 0.0

    def note_scan(self, seconds: float) -> None:
        """Note that the heads were scanned, and how long that took."""
        now = time.monotonic()
        self._scan_due = now + HEAD_SCAN_SECONDS
        self.scan_allowed_at = now + SCAN_PAUSE_FACTOR * seconds

    def note_freed(self, rows: Iterable[ClaimedRow]) -> None:
        """Let the next claim look at the jobs of the same keys as *rows*, which have ended."""
        for group, lane in _lanes_of(rows):
            self._freed.add(Segment.single(group, lane))
            self._groups.add(group)
            self._walk_is_due = True

    def note_lanes(self, found: Iterable[Ready]) -> None:
        """Take over where a scan found jobs."""
        served = [ready for ready in found if self._state.options.serves(ready)]
        self._lowest = {Lane(*r[:2]): r.lowest for r in served if r.urgency is None}
        self._lanes = set(self._lowest)
        self._groups = {
            Group(ready.backend, ready.queue_name, ready.urgency)
            for ready in served
            if ready.urgency is not None
        }
        self._cursors = {group: self._cursors.get(group, "") for group in self._groups}
        self._boosts = {ready.queue_name: ready.boost for ready in served if ready.boost}
        self._limited = {ready.queue_name for ready in served if ready.is_limited}
        self._walk_is_due = self._walk_is_due or bool(self._groups)

    def note_queue(self, queue_name: str) -> None:
        """Take over a queue that a notification named."""
        for backend in self._state.options.backends:
            lane = Lane(backend, queue_name)
            if self._state.options.serves(lane):
                self._lanes.add(lane)

    @property
    def has_lanes(self) -> bool:
        """Is any place known to have jobs?"""
        return bool(self._lanes or self._groups)

    @property
    def has_groups(self) -> bool:
        """Are jobs with keys known?"""
        return bool(self._groups)

    @property
    def look_allowed_at(self) -> float:
        """Return when a look makes sense: all that is left may be a walk that has to wait."""
        if self._lanes or self._freed or not self._walk_is_due or self.head_scan_is_due():
            return 0.0
        return self._walk_allowed_at

    @property
    def has_only_keys(self) -> bool:
        """Are all the jobs that are known of such with keys?"""
        return bool(self._groups) and not (self._lanes and self._finds_plain)

    def plan(self, wanted: int, *, from_heads: bool) -> Plan:
        """Return what the next claim is to read."""
        if self._is_time_to_lift():
            return self._plan_of_lowest(wanted)
        segments = self._segments(from_heads=from_heads)
        return self._plan(wanted, self._floors_from(from_heads), segments, from_heads=from_heads)

    def _floors_from(self, from_heads: bool) -> dict[Lane, Floor]:
        floors = {} if from_heads else self._floors
        return {lane: floors.get(lane, HEAD) for lane in sorted(self._lanes)}

    def _plan(
        self,
        wanted: int,
        floors: dict[Lane, Floor],
        segments: list[Segment],
        *,
        from_heads: bool,
        lifts: bool = False,
    ) -> Plan:
        caps = self._caps()
        return Plan(
            wanted=wanted,
            from_heads=from_heads,
            floors=floors,
            segments=segments,
            boosts=self._boosts,
            caps=caps,
            is_keyed=bool(segments or self._boosts or self._limited or caps),
            holds=bool(segments or self._limited),
            lifts=lifts,
        )

    def _is_time_to_lift(self) -> bool:
        ageing = self._state.options.ageing
        return ageing is not None and time.monotonic() >= self._lift_due

    def _plan_of_lowest(self, wanted: int) -> Plan:
        """Plan a claim of the lowest priority of each queue, so that it is not starved."""
        free = max(1, self._slots.most - len(self._slots.running))
        lowest: dict[Lane, Group] = {}
        for group in sorted(self._groups):
            lowest[Lane(group.backend, group.queue_name)] = group
        return self._plan(
            min(wanted, free),
            {lane: Floor(urgency, 0) for lane, urgency in sorted(self._lowest.items())},
            [Segment(group) for group in lowest.values()],
            from_heads=False,
            lifts=True,
        )

    def note_claimed(
        self, rows: list[ClaimedRow], plan: Plan, *, held: bool, seconds: float
    ) -> None:
        """Move the floors and cursors to where the batch ended, which took so many seconds.

        Only a full batch from the heads may lower a floor: there may be more where it ended.
        """
        if plan.lifts:
            self._lift_due = time.monotonic() + (self._state.options.ageing or 0.0)
            return
        is_full = len(rows) >= plan.wanted
        plain = [row for row in rows if row.lane is None]
        # A notification names a queue, whether its jobs have keys or not.
        self._finds_plain = bool(plain) if plan.floors else self._finds_plain
        ends = {Lane(row.backend, row.queue_name): Floor(-row.priority, row.id) for row in plain}
        for lane, end in ends.items():
            lowers = is_full and plan.from_heads
            self._floors[lane] = end if lowers else max(end, self._floors.get(lane, HEAD))
        keyed = [row for row in rows if row.lane is not None]
        if plan.segments and held:
            self._freed.difference_update(plan.segments)
            if plan.walks:
                self._note_walked(keyed, is_full, seconds)
        is_exhausted = bool(plan.floors) or (held and not keyed)
        if is_exhausted and not is_full and not plan.from_heads:
            self.request_head_scan()

    def _note_walked(self, rows: list[ClaimedRow], is_full: bool, seconds: float) -> None:
        self._walk_is_due = bool(rows)
        self._freed.clear()
        if not is_full:
            self._walk_allowed_at = time.monotonic() + WALK_PAUSE_FACTOR * seconds
        served: dict[Group, set[str]] = {}
        for group, lane in _lanes_of(rows):
            served.setdefault(group, set()).add(lane)
        for group, lanes in served.items():
            self._cursors[group] = _last_served(self._cursors.get(group, ""), lanes)

    def _segments(self, *, from_heads: bool) -> list[Segment]:
        def rank(group: Group) -> tuple[int, Group]:
            return group.urgency - self._boosts.get(group.queue_name, 0), group

        if not (from_heads or self._walk_is_due):
            return []
        if not from_heads and time.monotonic() < self._walk_allowed_at:
            return sorted(self._freed, key=lambda segment: (rank(segment.group), segment))
        segments = []
        for group in sorted(self._groups, key=rank):
            cursor = self._cursors.get(group, "")
            if cursor:
                segments += [Segment.behind(group, cursor), Segment(group, "", cursor)]
            else:
                segments.append(Segment(group))
        return segments

    def _caps(self) -> dict[str, int]:
        slots = self._state.options.queue_slots
        if not slots:
            return {}
        held = Counter(attempt.queue_name for attempt in list(self._state.held.values()))
        return {queue: max(0, most - held[queue]) for queue, most in slots.items()}

    def _all_slots_are_long(self) -> bool:
        running = list(self._slots.running)
        if len(running) < self._slots.most:
            return False
        newest = max(attempt.started_at for attempt in running)
        return time.monotonic() - newest > PREFETCH_SECONDS


def _lanes_of(rows: Iterable[ClaimedRow]) -> list[tuple[Group, str]]:
    """Return where jobs with keys come from, each lane once; many of a batch share one."""
    lanes = {(row.backend, row.queue_name, row.priority, row.lane) for row in rows}
    return [
        (Group(backend, queue_name, -priority), lane)
        for backend, queue_name, priority, lane in lanes
        if lane is not None
    ]


def _last_served(cursor: str, lanes: set[str]) -> str:
    """Return the lane where a walk that began behind *cursor* and served *lanes* ended.

    Even one whose batch is not full may have left lanes out: jobs that their key, their queue or
    their tokens held back after all have taken places in it.
    """
    before = [lane for lane in lanes if lane <= cursor]
    return max(before or lanes)
