"""The groups of lanes with keys of which a worker knows, and where its walks of them go on.

Jobs with keys are listed, chosen and taken (`keyed_claim`), by one worker at a time. In each
group the list goes on behind the lane that was served last, so that all take turns. The part
of walks that leaves a batch empty takes a fifth of the time at most, or such walks are five
seconds apart; in between, the lanes whose jobs ended here are looked at and no others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from django_pgjobs.choosing import Rooms
from django_pgjobs.queries.claims import ClaimedRow, Group, Segment
from django_pgjobs.worker.claiming.pace import Pace
from django_pgjobs.worker.claiming.plan import Claim

# After a walk of d seconds whose batch stayed empty there is none for this many times d.
WALK_PAUSE_FACTOR = 4


class Groups:
    """What one worker knows of lanes with keys."""

    def __init__(self) -> None:
        # Groups that may have jobs, with the lanes of which jobs ended here since the last claim.
        self._known: dict[Group, set[str]] = {}
        # The lane that was served last of each, and of former ones.
        self._cursors: dict[Group, str] = {}
        # Of walks of whole groups.
        self._walk_pace = Pace(WALK_PAUSE_FACTOR)

    # What others say

    def note_listing(self, found: Collection[Group]) -> None:
        """Take over which groups a look found."""
        self.expect(found)
        self._cursors = {group: self._cursors.get(group, "") for group in self._known}

    def expect(self, groups: Iterable[Group]) -> None:
        """Note that these groups may have jobs that can start now."""
        for group in groups:
            self._known.setdefault(group, set())

    def note_ended(self, rows: Iterable[ClaimedRow]) -> None:
        """Note jobs that ended here: what waited for their keys may start."""
        for group, lanes in keyed_lanes_of(rows).items():
            self._known.setdefault(group, set()).update(lanes)

    # What may be read

    @property
    def is_empty(self) -> bool:
        """Is no group known that may have jobs?"""
        return not self._known

    def claim_at(self, rooms: Rooms) -> float:
        """Return from when on lanes with keys are to be read; infinite if none are."""
        if any(freed and rooms[group.is_async] for group, freed in self._known.items()):
            return 0.0
        has_room = any(rooms[group.is_async] for group in self._known)
        return self._walk_pace.open_at if has_room else math.inf

    def segments(
        self,
        now: float,
        rooms: Rooms,
        ending: Iterable[ClaimedRow],
        rank: Callable[[Group], Any],
    ) -> list[Segment]:
        """Return which lanes to read, of the groups that come first by *rank* first.

        *ending* are the jobs whose outcomes are written before.
        """
        ending_lanes = keyed_lanes_of(ending)
        walks = self._walk_pace.is_open(now)
        known = [group for group, freed in self._known.items() if walks or freed]
        groups = ending_lanes.keys() | known
        segments = []
        for group in sorted((group for group in groups if rooms[group.is_async]), key=rank):
            if walks:
                segments += Segment.in_turn(group, self._cursors.get(group, ""))
            else:
                lanes = self._known.get(group, set()) | ending_lanes.get(group, set())
                segments += [Segment.single(group, lane) for lane in sorted(lanes)]
        return segments

    # What came of a claim

    def note_claimed(self, claim: Claim, filled: Sequence[float], now: float) -> None:
        """Learn from a claim that read some; *filled*: what share of each kind it got."""
        plan = claim.plan
        groups = {segment.group for segment in plan.segments}
        for group in groups & self._known.keys():
            self._known[group] = set()
        if plan.walks:
            self._note_walked(groups, claim.rows, filled)
            in_vain = 1 - max(filled[group.is_async] for group in groups)
            self._walk_pace.note(claim.seconds, now, in_vain)

    def _note_walked(
        self, groups: Collection[Group], rows: Iterable[ClaimedRow], filled: Sequence[float]
    ) -> None:
        """Forget the groups of a kind of which a walk got nothing although there was room."""
        served = keyed_lanes_of(rows)
        for group, lanes in served.items():
            self._cursors[group] = last_served(self._cursors.get(group, ""), lanes)
        kinds = {group.is_async for group in served}
        for group in groups:
            if filled[group.is_async] < 1 and group.is_async not in kinds:
                self._known.pop(group, None)


def keyed_lanes_of(rows: Iterable[ClaimedRow]) -> Mapping[Group, set[str]]:
    """Return the lanes that jobs with keys come from, by their group."""
    # By plain tuples: a Group for each row would take as long as all the rest.
    lanes = defaultdict[tuple[str, str, int, bool], set[str]](set)
    for row in rows:
        if row.lane is not None:
            lanes[row.backend, row.queue_name, -row.priority, row.is_async].add(row.lane)
    return {Group._make(group): of_group for group, of_group in lanes.items()}


def last_served(cursor: str, lanes: set[str]) -> str:
    """Return the lane where a walk that began behind *cursor* and served *lanes* ended.

    Even one whose batch is not full may have left lanes out: jobs that their key, their queue or
    their tokens held back after all have taken places in it.
    """
    before = [lane for lane in lanes if lane <= cursor]
    return max(before or lanes)
