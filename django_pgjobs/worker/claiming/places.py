"""Where this worker knows of jobs, and where in each place it goes on reading.

A *place* is a lane without keys, or a group of lanes with keys. An offer, and a job that ended or
went back here, add places; the answer of a claim that read all of a place and came back short
forgets it. Planning changes nothing.

**Floors.** While a transaction anywhere in the database holds an old snapshot, dead index
entries cannot be removed, and a claim from the head of a lane wades through all jobs that
ran since. So each lane is read from the position where the last batch ended, its floor. Jobs
before it (a higher priority, a retry) are found by a claim from the head, which follows an offer
and a short batch; but those that have become slow are made so rarely that they take a tenth of the
time at most.

**Keys.** Jobs with keys are listed, chosen and taken (`keyed_claim`), by one worker at a time. In
each group the list goes on behind the lane that was served last, so that all take turns. The part
of walks that leaves a batch empty takes a fifth of the time at most; in between, the lanes whose
jobs ended here are looked at and no others.

**Ageing.** If the project wants it, one claim in so many seconds begins at the lowest priorities.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from django_pgjobs.choosing import Rooms
from django_pgjobs.queries.claims import (
    HEAD,
    ClaimedRow,
    Floor,
    Group,
    Lane,
    Segment,
    lane_of,
)
from django_pgjobs.worker.claiming.pauses import pause_after
from django_pgjobs.worker.claiming.plan import Claim, Listing, Plan
from django_pgjobs.worker.claiming.turn_to_claim import TurnToClaim
from django_pgjobs.worker.state import Options

# After a claim from the heads that took d seconds there is none for this many times d (at most
# pauses.MOST_SECONDS).
HEADS_PAUSE_FACTOR = 9
WALK_PAUSE_FACTOR = 4


class Places:
    """What one worker knows of where jobs are; for the pump's thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._listing = Listing()
        # Lanes that may have jobs from their floors on, and such that may have some before. Floors
        # outlive that: a lane that is offered again goes on there if no heads are read now.
        self._behind: set[Lane] = set()
        self._before: set[Lane] = set()
        self._floors: dict[Lane, Floor] = {}
        # Where lanes begin, as of the last look; not of those that may have got earlier jobs since.
        self._heads: dict[Lane, Floor] = {}
        # From when on lanes may be read from their heads although they have floors.
        self._heads_at = 0.0
        # How many jobs the lanes that gave some gave, on average, to the last claim that chose
        # between lanes.
        self._jobs_per_lane = 1.0
        # Groups that may have jobs, and the lane that was served last of each, and of former ones.
        self._groups: set[Group] = set()
        self._cursors: dict[Group, str] = {}
        # Of groups that may have jobs: lanes of which a job ended here.
        self._freed: dict[Group, set[str]] = {}
        # From when on whole groups may be walked.
        self._walk_at = 0.0
        self._turn = TurnToClaim()
        # From when on a claim is to begin at the lowest priorities.
        self._lift_at = time.monotonic() + (options.ageing or 0.0)

    # What others say

    def note_listing(self, listing: Listing) -> None:
        """Take over where a look found jobs."""
        self._listing = listing
        # A lane that has got earlier jobs, as others said, may have got them after the look.
        whole = self._before - self._heads.keys()
        self._heads = {lane: head for lane, head in listing.lanes.items() if lane not in whole}
        self._behind |= listing.lanes.keys()
        self._before |= listing.lanes.keys()
        self._groups |= listing.groups
        self._cursors = {group: self._cursors.get(group, "") for group in self._groups}
        if time.monotonic() >= self._heads_at:
            # The next claim of a lane that is not known begins at its head anyway.
            known = self._behind | self._before
            self._floors = {lane: end for lane, end in self._floors.items() if lane in known}

    def note_time(self, now: float) -> None:
        """Walk the groups again when the tokens are there that their jobs wait for."""
        if now >= self._listing.tokens_at:
            self._listing = replace(self._listing, tokens_at=math.inf)
            self._groups |= self._listing.groups

    def note_queue(self, queue_name: str) -> None:
        """Take over a queue that a notification named."""
        for backend in self._options.backends:
            lanes = {Lane(backend, queue_name, is_async) for is_async in (False, True)}
            if self._options.serves(Lane(backend, queue_name)):
                self._behind |= lanes
                for lane in lanes:
                    self._expect_before(lane)

    def note_ended(self, rows: Collection[ClaimedRow]) -> None:
        """Note jobs that ended here: what waited for their keys and queues may start."""
        bounded = self._listing.limited | set(self._options.queue_slots)
        for queue_name in bounded & {row.queue_name for row in rows}:
            self.note_queue(queue_name)
            self._groups |= {each for each in self._listing.groups if each.queue_name == queue_name}
        for group, lanes in keyed_lanes_of(rows).items():
            self._freed.setdefault(group, set()).update(lanes)
            self._groups.add(group)

    def note_returned(self, rows: Iterable[ClaimedRow]) -> None:
        """Note jobs that were given back and may run at once: they are before the floors."""
        for row in rows:
            if row.lane is None:
                self._expect_before(lane_of(row))

    def _expect_before(self, lane: Lane) -> None:
        """Read a lane from its head, wherever it began so far."""
        self._heads.pop(lane, None)
        self._before.add(lane)

    # What may be read

    @property
    def is_empty(self) -> bool:
        """Is no place known?"""
        return not (self._behind or self._before or self._groups)

    @property
    def tokens_at(self) -> float:
        """When jobs that wait for tokens have enough of them, as far as a look has told."""
        return self._listing.tokens_at

    def claim_at(self, now: float, rooms: Rooms) -> float:
        """Return from when on there is something to claim; infinite if there is not."""
        if any(rooms[lane.is_async] and not self._is_limited(lane) for lane in self._behind):
            return 0.0
        turn_at = 0.0 if self.waits(now, rooms) else self._turn.ask_at
        times = [
            max(
                turn_at if self._is_limited(lane) else 0.0,
                0.0 if lane in self._behind else self._heads_at,
            )
            for lane in self._behind | self._before
            if rooms[lane.is_async]
        ]
        return min([*times, max(turn_at, self._keyed_at(rooms))])

    def waits(self, now: float, rooms: Rooms) -> bool:
        """Is it another worker's turn, and is nothing known that needs none?"""
        if not self._turn.may_wait(now):
            return False
        lanes = [lane for lane in self._behind | self._before if rooms[lane.is_async]]
        needs_turn = bool(lanes) or now >= self._keyed_at(rooms)
        return needs_turn and all(self._is_limited(lane) for lane in lanes)

    def _keyed_at(self, rooms: Rooms) -> float:
        """Return from when on lanes with keys are to be read; infinite if none are."""
        if any(rooms[group.is_async] for group in self._freed):
            return 0.0
        return self._walk_at if any(rooms[each.is_async] for each in self._groups) else math.inf

    def plan(
        self,
        rooms: Rooms,
        now: float,
        *,
        wanted: int,
        free: Rooms,
        caps: Mapping[str, int],
        waits: bool = False,
        ending: Iterable[ClaimedRow] = (),
    ) -> Plan | None:
        """Return what a claim is to read now, None if there is nothing.

        It takes as many jobs of each kind as there are *rooms*, and *wanted* in all. *waits*: it
        waits for its turn. *ending* are the jobs whose outcomes are written before it, *free* the
        slots.
        """
        if self._options.ageing is not None and now >= self._lift_at and self._knows_lowest:
            threads, loop = (min(room, max(1, free[kind])) for kind, room in enumerate(rooms))
            return self._plan_of_lowest(Rooms(threads, loop), wanted, now, caps)
        is_in_turn, is_due = waits or now >= self._turn.ask_at, now >= self._heads_at
        heads = (self._behind - self._floors.keys()) | (self._before if is_due else set())
        floors = self._floors_of(heads, rooms, is_in_turn=is_in_turn)
        segments = self._segments(now, keyed_lanes_of(ending), rooms) if is_in_turn else []
        if not (floors or segments):
            return None
        plan = Plan(
            rooms=rooms,
            wanted=wanted,
            floors=floors,
            segments=segments,
            boosts=self._listing.boosts,
            caps=caps,
            limited=frozenset(lane.queue_name for lane in floors) & self._listing.limited,
            heads=frozenset(heads & floors.keys()),
            takes_tokens=self._turn.may_take_tokens(now),
            waits=waits,
        )
        return plan if plan.is_keyed else plan.of_nearest(self._jobs_per_lane)

    def _floors_of(
        self, heads: Collection[Lane], rooms: Rooms, *, is_in_turn: bool
    ) -> dict[Lane, Floor]:
        """Return from where to read the lanes that there is room for, some from their heads."""
        return {
            lane: (self._heads if lane in heads else self._floors).get(lane, HEAD)
            for lane in self._behind.union(heads)
            if rooms[lane.is_async] and (is_in_turn or not self._is_limited(lane))
        }

    @property
    def _knows_lowest(self) -> bool:
        """Are there places whose lowest priority a look has told?"""
        return bool(self._listing) and not self.is_empty

    def _plan_of_lowest(
        self, rooms: Rooms, wanted: int, now: float, caps: Mapping[str, int]
    ) -> Plan:
        """Plan a claim of the lowest priority of each queue, so that it is not starved."""
        lowest: dict[Lane, Group] = {}
        for group in sorted(self._listing.groups):
            lowest[Lane(group.backend, group.queue_name, group.is_async)] = group
        floors = {lane: Floor(urgency, 0) for lane, urgency in sorted(self._listing.lowest.items())}
        segments = [Segment(group) for group in lowest.values()]
        return Plan(
            rooms=rooms,
            wanted=min(wanted, sum(rooms)),
            floors=floors,
            segments=segments,
            boosts=self._listing.boosts,
            caps=caps,
            limited=self._listing.limited,
            takes_tokens=self._turn.may_take_tokens(now),
            lifts=True,
        )

    def _segments(
        self, now: float, ending: Mapping[Group, set[str]], rooms: Rooms
    ) -> list[Segment]:
        walks = now >= self._walk_at
        groups = self._groups.union(ending) if walks else self._freed.keys() | ending.keys()
        segments = []
        there = (group for group in groups if rooms[group.is_async])
        for group in sorted(there, key=self._listing.rank):
            if walks:
                segments += Segment.in_turn(group, self._cursors.get(group, ""))
            else:
                lanes = self._freed.get(group, set()) | ending.get(group, set())
                segments += [Segment.single(group, lane) for lane in sorted(lanes)]
        return segments

    def _is_limited(self, lane: Lane) -> bool:
        return lane.queue_name in self._listing.limited

    # What came of a claim

    def note_locked(self, plan: Plan) -> None:
        """Note that a claim waited for a lock in vain.

        Somebody holds the state of a rate limit or the right to claim jobs with keys.
        """
        now = time.monotonic()
        self._note_lift(plan, now)
        self._turn.note_locked(now)
        if plan.holds and not plan.takes_tokens:
            self._turn.note(now, held=False)

    def note_claimed(self, claim: Claim) -> None:
        """Learn from a claim that tells what is left in its places."""
        plan, rows = claim.plan, claim.rows
        now = time.monotonic()
        if plan.holds:
            self._turn.note(now, held=claim.held)
        self._note_lift(plan, now)
        if plan.lifts:
            return
        claimed = Counter(row.is_async for row in rows)
        filled = [plan.filled(claimed, is_async=is_async) for is_async in (False, True)]
        full = [share >= 1 for share in filled]
        if plan.heads and now >= self._heads_at:
            self._heads_at = now + pause_after(claim.seconds, HEADS_PAUSE_FACTOR)
        self._note_lanes(claim, full)
        if plan.segments and claim.held:
            for group in {segment.group for segment in plan.segments}:
                self._freed.pop(group, None)
            if plan.walks:
                self._note_walked(plan, rows, full)
                in_vain = 1 - max(filled[segment.group.is_async] for segment in plan.segments)
                self._walk_at = now + pause_after(in_vain * claim.seconds, WALK_PAUSE_FACTOR)

    def _note_lift(self, plan: Plan, now: float) -> None:
        if plan.lifts:
            self._lift_at = now + (self._options.ageing or 0.0)

    def _note_lanes(self, claim: Claim, full: Sequence[bool]) -> None:
        """Move the floors to where the lanes go on, and forget the lanes that have no more.

        Unless the claim tells, those that gave jobs to a full batch go on where it ended, and those
        of a kind whose batch is not full have no more. Only one that was read from its head and
        goes on may get a lower floor. A lane that stays known is so all the time: the upkeep reads
        `is_empty` without a lock.
        """
        plan = claim.plan
        last_rows = {lane_of(row): row for row in claim.rows if row.lane is None}
        ends = {lane: Floor(-row.priority, row.id) for lane, row in last_rows.items()}
        if claim.floors is not None:
            self._jobs_per_lane = len(claim.rows) / len(ends) if ends else self._jobs_per_lane
            going_on, over = claim.floors, plan.floors.keys() - claim.floors.keys()
        else:
            going_on = {lane: end for lane, end in ends.items() if full[lane.is_async]}
            over = {
                lane
                for lane in plan.floors
                if not full[lane.is_async] and (claim.held or not self._is_limited(lane))
            }
        for lane, end in (ends | going_on).items():
            lowers = lane in going_on and lane in plan.heads
            self._floors[lane] = end if lowers else max(end, self._floors.get(lane, HEAD))
        for lane in going_on.keys() & plan.heads:
            self._behind.add(lane)
            self._before.discard(lane)
        for lane in over:
            if lane in plan.heads:
                self._before.discard(lane)
            else:
                self._expect_before(lane)
            self._behind.discard(lane)

    def _note_walked(self, plan: Plan, rows: Collection[ClaimedRow], full: Sequence[bool]) -> None:
        served = keyed_lanes_of(rows)
        for group, lanes in served.items():
            self._cursors[group] = last_served(self._cursors.get(group, ""), lanes)
        kinds = {group.is_async for group in served}
        walked = {segment.group for segment in plan.segments}
        self._groups -= {
            group for group in walked if not full[group.is_async] and group.is_async not in kinds
        }


def keyed_lanes_of(rows: Iterable[ClaimedRow]) -> dict[Group, set[str]]:
    """Return the lanes that jobs with keys come from, by their group."""
    lanes: dict[Group, set[str]] = {}
    for row in rows:
        if row.lane is not None:
            group = Group(row.backend, row.queue_name, -row.priority, row.is_async)
            lanes.setdefault(group, set()).add(row.lane)
    return lanes


def last_served(cursor: str, lanes: set[str]) -> str:
    """Return the lane where a walk that began behind *cursor* and served *lanes* ended.

    Even one whose batch is not full may have left lanes out: jobs that their key, their queue or
    their tokens held back after all have taken places in it.
    """
    before = [lane for lane in lanes if lane <= cursor]
    return max(before or lanes)
