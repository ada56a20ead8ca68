"""What a look found, what a claim is to read, and what came of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

from django_pgjobs.choosing import Rooms
from django_pgjobs.queries.claims import (
    HEAD,
    TAIL,
    ClaimedRow,
    Floor,
    Group,
    Lane,
    ReadyPlace,
    Scope,
    Segment,
)
from django_pgjobs.worker.state import Options


@dataclass(frozen=True, slots=True)
class Listing:
    """What a look found of the places that a worker serves."""

    # Lanes without keys, and where they begin.
    lanes: Mapping[Lane, Floor] = field(default_factory=dict)
    groups: frozenset[Group] = frozenset()
    # Added to the priorities of a queue.
    boosts: Mapping[str, int] = field(default_factory=dict)
    # Queues whose number of running jobs is limited.
    limited: frozenset[str] = frozenset()
    # Minus the lowest priority of each lane.
    lowest: Mapping[Lane, int] = field(default_factory=dict)
    # When jobs of the groups that wait for tokens have enough of them.
    tokens_at: float = math.inf

    @classmethod
    def of(cls, found: Iterable[ReadyPlace], options: Options) -> Listing:
        """Return what of the places found is for a worker with these options."""
        served = [place for place in found if options.serves(place)]
        plain = {
            Lane(place.backend, place.queue_name, place.is_async): place
            for place in served
            if place.urgency is None
        }
        return cls(
            lanes={lane: place.head for lane, place in plain.items()},
            groups=frozenset(
                Group(place.backend, place.queue_name, place.urgency, place.is_async)
                for place in served
                if place.urgency is not None
            ),
            boosts={place.queue_name: place.boost for place in served if place.boost},
            limited=frozenset(place.queue_name for place in served if place.is_limited),
            lowest={lane: place.lowest for lane, place in plain.items()},
        )

    def __bool__(self) -> bool:
        return bool(self.lanes or self.groups)

    def below_the_best(self, rooms: Rooms) -> tuple[dict[Lane, Floor], list[Group]]:
        """Return where the lowest jobs of each queue are that others go before.

        Lanes without keys with where to begin, and groups; of the kinds that there is room for.
        """

        def below(queue_name: str, urgency: int) -> int:
            return urgency - self.boosts.get(queue_name, 0)

        heads = [below(lane.queue_name, head.urgency) for lane, head in self.lanes.items()]
        best = min([*heads, *(self.rank(group)[0] for group in self.groups)], default=0)
        floors = {
            lane: Floor(urgency, 0)
            for lane, urgency in sorted(self.lowest.items())
            if rooms[lane.is_async] and below(lane.queue_name, urgency) > best
        }
        lowest: dict[Lane, Group] = {}
        for group in sorted(self.groups):
            if rooms[group.is_async] and self.rank(group)[0] > best:
                lowest[Lane(group.backend, group.queue_name, group.is_async)] = group
        return floors, list(lowest.values())

    def rank(self, group: Group) -> tuple[int, Group]:
        """Return what to sort groups by: the most urgent first, boosts included."""
        return group.urgency - self.boosts.get(group.queue_name, 0), group


# Of the lanes of a kind a claim reads so many at least, those that begin first.
FEW_LANES = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What one claim is to read, and from where."""

    # How many jobs of each kind it takes at most, and in all.
    rooms: Rooms
    wanted: int
    floors: dict[Lane, Floor]
    segments: list[Segment]
    boosts: Mapping[str, int]
    caps: Mapping[str, int]
    limited: frozenset[str]
    # Up to where the lanes of each kind are read: there begin others, which are not.
    ends: tuple[Floor, Floor] = (TAIL, TAIL)
    # The lanes that are read from their heads.
    heads: frozenset[Lane] = frozenset()
    takes_tokens: bool = True
    # It leaves out jobs without keys that others have locked before it decides what each lane is to
    # give, at the price of more locks.
    skips_locked: bool = False
    # It waits for the turn of this worker to claim jobs with keys.
    waits: bool = False
    # It begins at the lowest priority of a queue, and moves neither floors nor cursors.
    lifts: bool = False

    @property
    def scope(self) -> Scope:
        """Return what the claim is to choose from, if it has to choose."""
        return Scope(
            floors=self.floors,
            segments=self.segments,
            boosts=self.boosts,
            slots=self.caps,
            rooms=self.rooms,
            max_jobs=self.wanted,
            skips_locked=self.skips_locked,
        )

    def of_nearest(self, jobs_per_lane: float) -> Plan:
        """Return what it is without the lanes that begin later than the batch is likely to end.

        It is likely to end where as many lanes begin as fill it at *jobs_per_lane* each. Those
        behind are next when these have no more up to there. A lane that may begin anywhere is read
        as well, at the end, because it is likely to have none.
        """
        kinds = {lane.is_async for lane in self.floors}
        if len(self.floors) == len(kinds):
            return self  # each is the only one of its kind
        left = [max(FEW_LANES, math.ceil(room / jobs_per_lane)) for room in self.rooms]
        floors: dict[Lane, Floor] = {}
        anywhere: dict[Lane, Floor] = {}
        ends: dict[bool, Floor] = {}
        for lane, floor in sorted(self.floors.items(), key=itemgetter(1)):
            kind = lane.is_async
            if floor == HEAD:
                anywhere[lane] = floor
            elif left[kind] > 0:
                left[kind] -= 1
                floors[lane] = floor
            else:
                ends.setdefault(kind, floor)
                if len(ends) == len(kinds):
                    break
        floors |= anywhere
        return replace(
            self,
            floors=floors,
            ends=(ends.get(False, TAIL), ends.get(True, TAIL)),
            heads=self.heads & floors.keys(),
        )

    def after(self, rows: Iterable[ClaimedRow], at_most: int) -> Plan:
        """Return what is left of it when these jobs are claimed, no more than *at_most*."""
        claimed = Counter(row.is_async for row in rows)
        rooms = Rooms(self.rooms.threads - claimed[False], self.rooms.loop - claimed[True])
        return replace(self, rooms=rooms, wanted=min(at_most, self.wanted - claimed.total()))

    def filled(self, claimed: Counter[bool], *, is_async: bool) -> float:
        """Return what share of the jobs of a kind it got that it could; 1: there may be more."""
        of_kind = claimed[is_async] / self.rooms[is_async] if self.rooms[is_async] else 1.0
        return max(of_kind, claimed.total() / self.wanted)

    @property
    def is_keyed(self) -> bool:
        """Is it listed and chosen before it takes (keys, boosts, limits, slots)?"""
        return bool(self.segments or self.boosts or self.limited or self.caps)

    @property
    def holds(self) -> bool:
        """Is it for one worker at a time?"""
        return bool(self.segments or self.limited)

    @property
    def walks(self) -> bool:
        """Is it to look at all lanes with keys?"""
        return bool(self.segments) and not self.segments[0].is_single


@dataclass
class Claim:
    """One claim and what came back."""

    plan: Plan
    rows: list[ClaimedRow] = field(default_factory=list)
    # When it was sent.
    asked_at: float = 0.0
    # Was it this worker's turn to claim jobs with keys? How long did it wait for that, and how long
    # did the rest take?
    held: bool = False
    waited: float = 0.0
    seconds: float = 0.0
    # Did it give up waiting for a lock?
    was_locked: bool = False
    # Can be learnt from it what is left in its places? Not if it was sent again for fewer jobs and
    # got some, or is for one worker at a time.
    is_whole: bool = False
    # How many jobs it was to take, and where the lanes go on that have more, if it tells.
    chosen: int = 0
    floors: dict[Lane, Floor] | None = None
