"""The lanes without keys of which a worker knows, and from where it reads each of them.

**Floors.** While a transaction anywhere in the database holds an old snapshot, dead index
entries cannot be removed, and a claim from the head of a lane wades through all jobs that
ran since. So each lane is read from the position where the last batch ended, its floor. Jobs
before it (a higher priority, a retry) are found by a claim from the head, which follows an offer
and a short batch; but those that have become slow are made so rarely that they take a tenth of the
time at most, or are five seconds apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from django_pgjobs.queries.claims import HEAD, ClaimedRow, Floor, Lane
from django_pgjobs.worker.claiming.pace import Pace
from django_pgjobs.worker.claiming.plan import Claim, Listing, Plan

# After a claim from the heads that took d seconds there is none for this many times d (at most
# pace.MOST_SECONDS).
HEADS_PAUSE_FACTOR = 9
# A claim that got less than this share of what it chose has met jobs that others have locked, which
# would get a share of each claim. So long they are left out then, by locking what is looked at.
POOR_SHARE, SKIP_LOCKED_SECONDS = 0.5, 1.0

LaneFilter = Callable[[Lane], bool]


class KnownLane(NamedTuple):
    """Where a lane may have jobs: behind its floor, before it, or both."""

    behind: bool
    # The earliest position where there may be one: where a look saw the lane begin, or HEAD if it
    # may have got earlier ones since. None: there are none before the floor.
    before: Floor | None


class Lanes:
    """What one worker knows of lanes without keys."""

    def __init__(self) -> None:
        # Lanes that may have jobs. Other threads ask whether there are any, so what is known of a
        # lane is replaced in one step.
        self._known: dict[Lane, KnownLane] = {}
        # These outlive that: a lane that is offered again goes on there if no heads are read now.
        self._floors: dict[Lane, Floor] = {}
        # Of claims from the heads of lanes that have floors.
        self._heads_pace = Pace(HEADS_PAUSE_FACTOR)
        # How many jobs the lanes that gave some gave, on average, to the last claim that chose
        # between lanes.
        self.jobs_per_lane = 1.0
        # Until when claims leave out what others have locked before they decide.
        self._skip_locked_until = 0.0

    # What others say

    def note_listing(self, listing: Listing, now: float) -> None:
        """Take over where a look found jobs."""
        for lane, head in listing.lanes.items():
            known = self._known.get(lane)
            # One that has got earlier jobs, as others said, may have got them after the look.
            is_whole = known is not None and known.before == HEAD
            self._known[lane] = KnownLane(behind=True, before=HEAD if is_whole else head)
        if self._heads_pace.is_open(now):
            # The next claim of a lane that is not known begins at its head anyway.
            self._floors = {lane: end for lane, end in self._floors.items() if lane in self._known}

    def expect(self, lane: Lane) -> None:
        """Note that a lane may have new jobs anywhere."""
        self._known[lane] = KnownLane(behind=True, before=HEAD)

    def expect_before(self, lane: Lane) -> None:
        """Note that a lane may have jobs before its floor, and before where a look saw it begin."""
        known = self._known.get(lane)
        self._known[lane] = KnownLane(behind=known is not None and known.behind, before=HEAD)

    # What may be read

    @property
    def is_empty(self) -> bool:
        """Is no lane known that may have jobs?"""
        return not self._known

    def claim_at(self, is_open: LaneFilter) -> float:
        """Return from when on one of the lanes that are open may be read; infinite if none is."""
        if any(known.behind and is_open(lane) for lane, known in self._known.items()):
            return 0.0
        return self._heads_pace.open_at if any(map(is_open, self._known)) else math.inf

    def skips_locked(self, now: float) -> bool:
        """Is a claim to leave out what others have locked before it decides?"""
        return now < self._skip_locked_until

    def floors(self, now: float, is_open: LaneFilter) -> tuple[dict[Lane, Floor], frozenset[Lane]]:
        """Return from where to read the lanes that are open, and which of them from their heads."""
        floors: dict[Lane, Floor] = {}
        heads: set[Lane] = set()
        reads_heads = self._heads_pace.is_open(now)
        for lane, (behind, before) in self._known.items():
            if not is_open(lane):
                continue
            floor = self._floors.get(lane) if behind else None
            if before is not None and (reads_heads or (behind and floor is None)):
                floors[lane] = before
                heads.add(lane)
            elif floor is not None:
                floors[lane] = floor
        return floors, frozenset(heads)

    # What came of a claim

    def note_claimed(
        self, claim: Claim, full: Sequence[bool], is_read: LaneFilter, now: float
    ) -> None:
        """Move the floors to where the lanes go on, and forget those that have no more.

        *full* tells of which kinds its batch is full, *is_read* which lanes it was free to take of.
        """
        plan = claim.plan
        if len(claim.rows) < POOR_SHARE * claim.chosen:
            self._skip_locked_until = now + SKIP_LOCKED_SECONDS
        if plan.heads and self._heads_pace.is_open(now):
            self._heads_pace.note(claim.seconds, now)
        ends = ends_of(claim.rows)
        if claim.floors is not None:
            if ends:
                self.jobs_per_lane = len(claim.rows) / len(ends)
            going_on, over = claim.floors, plan.floors.keys() - claim.floors.keys()
        else:
            # Those that gave jobs to a full batch go on where it ended.
            going_on = {lane: end for lane, end in ends.items() if full[lane.is_async]}
            over = {lane for lane in plan.floors if not full[lane.is_async] and is_read(lane)}
        self._move_floors(plan, ends, going_on)
        for lane in over:
            if lane in plan.heads:
                self._known.pop(lane, None)
            else:
                self._known[lane] = KnownLane(behind=False, before=HEAD)

    def _move_floors(
        self, plan: Plan, ends: Mapping[Lane, Floor], going_on: Mapping[Lane, Floor]
    ) -> None:
        """Only a lane that was read from its head and goes on may get a lower floor."""
        for lane, end in {**ends, **going_on}.items():
            lowers = lane in going_on and lane in plan.heads
            self._floors[lane] = end if lowers else max(end, self._floors.get(lane, HEAD))
        for lane in going_on.keys() & plan.heads:
            self._known[lane] = KnownLane(behind=True, before=None)


def ends_of(rows: Iterable[ClaimedRow]) -> dict[Lane, Floor]:
    """Return the last of these jobs of each lane without keys."""
    # By plain tuples: a Lane for each row would take as long as all the rest.
    last = {(row.backend, row.queue_name, row.is_async): row for row in rows if row.lane is None}
    return {Lane._make(lane): Floor(-row.priority, row.id) for lane, row in last.items()}
