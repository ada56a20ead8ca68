"""What the pump wants and knows of, as other threads see it, and how long it may rest.

The pump goes on meanwhile, so an answer may be outdated a moment later.
"""

from __future__ import annotations

import math
import time
from collections import deque

from django_pgjobs.choosing import Rooms
from django_pgjobs.worker.attempt import HOARD_SECONDS
from django_pgjobs.worker.claiming.completer import LINGER_SECONDS, Completer
from django_pgjobs.worker.claiming.demand import Demand
from django_pgjobs.worker.claiming.places import Places
from django_pgjobs.worker.claiming.plan import Listing
from django_pgjobs.worker.claiming.releases import Releases
from django_pgjobs.worker.claiming.settling import Settling


class Outlook:
    """Answers questions about a pump, from any thread; the pump notes what it does."""

    def __init__(
        self,
        demand: Demand,
        places: Places,
        completer: Completer,
        releases: Releases,
        settling: Settling,
    ) -> None:
        self._demand = demand
        self._places = places
        self._completer = completer
        self._releases = releases
        self._settling = settling
        # Places that others told of, and that the pump has not taken over yet.
        self.offers: deque[Listing | str] = deque()
        # When a claim last brought jobs, and when one last ended without an answer.
        self.claimed_at = self.claim_lost_at = -math.inf
        # Until when it last waited for news.
        self.waited_at = 0.0

    @property
    def wants_jobs(self) -> bool:
        """Is the pump to claim jobs of some kind?"""
        return any(self._demand.rooms())

    @property
    def has_room(self) -> bool:
        """Is it to claim jobs of each kind? Else others may have to take the new ones."""
        return all(self._demand.rooms())

    @property
    def is_idle(self) -> bool:
        """Does it know of no place to claim from?"""
        return not self.offers and self._places.is_empty

    @property
    def is_releasing(self) -> bool:
        """Are there jobs that waited for others and are still to be let go?"""
        return self._releases.are_under_way

    @property
    def is_settling(self) -> bool:
        """Are there batches that it is to count?"""
        return self._settling.is_under_way

    @property
    def waits_for_news(self) -> bool:
        """Is the pump to claim jobs of each kind, and does it know of no place?"""
        return self.is_idle and self.has_room

    @property
    def has_full_queue(self) -> bool:
        """Has a queue as many jobs here as it may, so that others have to take more of it?"""
        return 0 in self._demand.caps().values()

    def note_offer(self, place: Listing | str) -> None:
        """Note where jobs may be, for the pump to take over; safe from any thread."""
        if self.is_idle:
            # The pump itself says so only when it gets the interpreter's lock.
            self.note_waited()
        self.offers.append(place)

    def note_claimed(self) -> None:
        """Note that a claim brought jobs."""
        self.claimed_at = time.monotonic()

    def note_lost(self) -> None:
        """Note that a claim has ended without an answer."""
        self.claim_lost_at = time.monotonic()

    def note_dry(self) -> bool:
        """Note it if the pump waits for news; return whether it does."""
        if is_dry := self.waits_for_news:
            self.note_waited()
        return is_dry

    def note_waited(self) -> None:
        """Note that the pump has waited for news until now."""
        self.waited_at = time.monotonic()

    def seconds_of_rest(self, now: float, rooms: Rooms, *, is_dry: bool) -> float | None:
        """Return in how many seconds something is due, None if nothing is.

        A pump that *is_dry* is told of places.
        """
        waits = [self._completer.due_at - now, self._settling.due_at - now]
        if len(self._completer):
            waits.append(LINGER_SECONDS - self._completer.oldest_age())
        if any(rooms):
            waits.append(self._places.tokens_at - now)
            if not is_dry:
                waits.append(self._places.claim_at(now, rooms) - now)
        if self._demand.buffered():
            waits.append(HOARD_SECONDS / 2)
        pause = min(waits)
        return None if pause == math.inf else max(0.0, pause)
