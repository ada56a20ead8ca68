"""Where this worker knows of jobs, and what a claim is to read of that.

A *place* is a lane without keys (`lanes`), or a group of lanes with keys (`groups`). An offer, and
a job that ended or went back here, add places; the answer of a claim that read all of a place and
came back short forgets it. A plan changes nothing.

**Ageing.** If the project wants it, one claim in so many seconds begins at the lowest priority of
a queue.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from django_pgjobs.choosing import Rooms
from django_pgjobs.queries.claims import ClaimedRow, Lane, Segment, lane_of
from django_pgjobs.worker.claiming.groups import Groups
from django_pgjobs.worker.claiming.lanes import LaneFilter, Lanes
from django_pgjobs.worker.claiming.plan import Claim, Listing, Plan
from django_pgjobs.worker.claiming.turn_to_claim import TurnToClaim
from django_pgjobs.worker.state import Options


class Places:
    """What one worker knows of where jobs are; for the pump's thread."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._listing = Listing()
        self._lanes = Lanes()
        self._groups = Groups()
        self._turn = TurnToClaim()
        # From when on a claim is to begin at the lowest priority of a queue.
        self._lift_at = time.monotonic() + (options.ageing or 0.0)

    # What others say

    def note_listing(self, listing: Listing) -> None:
        """Take over where a look found jobs."""
        self._listing = listing
        self._lanes.note_listing(listing, time.monotonic())
        self._groups.note_listing(listing.groups)

    def note_time(self, now: float) -> None:
        """Walk the groups again when the tokens are there that their jobs wait for."""
        if now >= self._listing.tokens_at:
            self._listing = replace(self._listing, tokens_at=math.inf)
            self._groups.expect(self._listing.groups)

    def note_queue(self, queue_name: str) -> None:
        """Take over a queue that a notification named."""
        for backend in self._options.backends:
            if self._options.serves(Lane(backend, queue_name)):
                for is_async in (False, True):
                    self._lanes.expect(Lane(backend, queue_name, is_async))

    def note_ended(self, rows: Collection[ClaimedRow]) -> None:
        """Note jobs that ended here: what waited for their keys and queues may start."""
        bounded = self._listing.limited | set(self._options.queue_slots)
        for queue_name in bounded & {row.queue_name for row in rows}:
            self.note_queue(queue_name)
            self._groups.expect(g for g in self._listing.groups if g.queue_name == queue_name)
        self._groups.note_ended(rows)

    def note_returned(self, rows: Iterable[ClaimedRow]) -> None:
        """Note jobs that were given back and may run at once: they are before the floors."""
        for row in rows:
            if row.lane is None:
                self._lanes.expect_before(lane_of(row))

    # What may be read

    @property
    def is_empty(self) -> bool:
        """Is no place known?"""
        return self._lanes.is_empty and self._groups.is_empty

    @property
    def tokens_at(self) -> float:
        """When jobs that wait for tokens have enough of them, as far as a look has told."""
        return self._listing.tokens_at

    def claim_at(self, now: float, rooms: Rooms) -> float:
        """Return from when on there is something to claim; infinite if there is not."""
        turn_at = 0.0 if self.waits(now, rooms) else self._turn.ask_at
        without_turn = self._lanes.claim_at(self._open(rooms, in_turn=False))
        return min(without_turn, max(turn_at, self._in_turn_at(rooms)))

    def waits(self, now: float, rooms: Rooms) -> bool:
        """Is it another worker's turn, and is nothing known that needs none?"""
        if not self._turn.may_wait(now):
            return False
        without_turn = self._lanes.claim_at(self._open(rooms, in_turn=False))
        return without_turn == math.inf and now >= self._in_turn_at(rooms)

    def _in_turn_at(self, rooms: Rooms) -> float:
        """Return from when on there is something to claim if it is this worker's turn."""
        lanes_at = self._lanes.claim_at(self._open(rooms, in_turn=True))
        return min(lanes_at, self._groups.claim_at(rooms))

    def _open(self, rooms: Rooms, *, in_turn: bool) -> LaneFilter:
        """Return the filter of lanes that there is room for; some need this worker's turn."""
        limited = frozenset() if in_turn else self._listing.limited
        return lambda lane: rooms[lane.is_async] > 0 and lane.queue_name not in limited

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
        if self._options.ageing is not None and now >= self._lift_at:
            threads, loop = (min(room, max(1, free[kind])) for kind, room in enumerate(rooms))
            if lifting := self._plan_of_lowest(Rooms(threads, loop), wanted, now, caps):
                return lifting
        in_turn = waits or now >= self._turn.ask_at
        floors, heads = self._lanes.floors(now, self._open(rooms, in_turn=in_turn))
        segments = self._groups.segments(now, rooms, ending, self._listing.rank) if in_turn else []
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
            heads=heads,
            takes_tokens=self._turn.may_take_tokens(now),
            skips_locked=self._lanes.skips_locked(now),
            waits=waits,
        )
        return plan if plan.is_keyed else plan.of_nearest(self._lanes.jobs_per_lane)

    def _plan_of_lowest(
        self, rooms: Rooms, wanted: int, now: float, caps: Mapping[str, int]
    ) -> Plan | None:
        """Plan a claim of the lowest priority of a queue that has jobs below the best of all.

        Of one that chance chooses, so that none is starved by the next lower one.
        """
        if self.is_empty:
            return None
        floors, groups = self._listing.below_the_best(rooms)
        queues = {lane.queue_name for lane in floors} | {group.queue_name for group in groups}
        if not queues:
            return None
        queue_name = random.choice(sorted(queues))
        return Plan(
            rooms=rooms,
            wanted=min(wanted, sum(rooms)),
            floors={lane: at for lane, at in floors.items() if lane.queue_name == queue_name},
            segments=[Segment(group) for group in groups if group.queue_name == queue_name],
            boosts=self._listing.boosts,
            caps=caps,
            limited=self._listing.limited,
            takes_tokens=self._turn.may_take_tokens(now),
            lifts=True,
        )

    # What came of a claim

    def note_locked(self, plan: Plan) -> None:
        """Note that a claim waited for a lock in vain.

        Somebody holds the state of a rate limit or the right to claim jobs with keys.
        """
        now = time.monotonic()
        self._note_lift(plan, now)
        self._turn = self._turn.locked(now)
        if plan.holds and not plan.takes_tokens:
            self._turn = self._turn.asked(now, held=False)

    def note_claimed(self, claim: Claim) -> None:
        """Learn from a claim that tells what is left in its places."""
        plan = claim.plan
        now = time.monotonic()
        if plan.holds:
            # Who has waited in vain met nobody: the row is gone. A claim that asks makes it anew.
            self._turn = self._turn.asked(now, held=claim.held or plan.waits)
        self._note_lift(plan, now)
        if plan.lifts:
            return
        claimed = Counter(row.is_async for row in claim.rows)
        filled = [plan.filled(claimed, is_async=is_async) for is_async in (False, True)]
        is_read = self._open(Rooms(1, 1), in_turn=claim.held)
        self._lanes.note_claimed(claim, [share >= 1 for share in filled], is_read, now)
        if plan.segments and claim.held:
            self._groups.note_claimed(claim, filled, now)

    def _note_lift(self, plan: Plan, now: float) -> None:
        if plan.lifts:
            self._lift_at = now + (self._options.ageing or 0.0)
