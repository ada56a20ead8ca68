"""Where jobs are: one look for all requests of a process, as fresh as each of them needs it."""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import psycopg

from django_pgjobs.http.pool import turn
from django_pgjobs.queries import claims, jobs
from django_pgjobs.queries.claims import ReadyPlace
from django_pgjobs.queries.errors import trouble_of
from django_pgjobs.queries.sends import Send
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.upkeep.look import PROMOTE_BATCH

logger = get_logger(__name__)

# How old a look may be that a claim goes by. Jobs that were added since may wait for so long.
KNOWN_SECONDS = 1.0
# How old it may be if a claim by it found nothing.
VAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class LookResult:
    """What a look found that was asked at *asked_at*, by time.monotonic(), and took so long."""

    places: tuple[ReadyPlace, ...] = ()
    asked_at: float = -math.inf
    seconds: float = 0.0
    # When the next job is due that waits for its time.
    due_at: float = math.inf

    def is_limited(self, queue_name: str) -> bool:
        """May only so many jobs of the queue run?"""
        return any(place.is_limited for place in self.places if place.queue_name == queue_name)


class Looks:
    """The last look, and making the next."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Know nothing."""
        # Held during a look, ...
        self._looking = threading.Lock()
        # ... and while what is known changes. They are two, because a caller of `expect` may hold a
        # connection that the look waits for.
        self._change = threading.Lock()
        self.last = LookResult()
        # When the next job is due of those that `expect` was told of since the last look began.
        self._expected_at = math.inf

    def get(self, *, since: float) -> LookResult:
        """Return what a look found that was not made before *since*.

        A job that has come due meanwhile asks for a new one, too.
        """
        with self._looking:
            if self.last.asked_at < since or self.last.due_at <= time.monotonic():
                with self._change:
                    self._expected_at = math.inf
                found = _look()
                with self._change:
                    due_at = min(found.due_at, self._expected_at)
                    self.last = replace(found, due_at=due_at)
            return self.last

    def expect(self, delay: float) -> None:
        """Note that a job will be due in so many seconds."""
        due_at = time.monotonic() + delay
        with self._change:
            self._expected_at = min(self._expected_at, due_at)
            self.last = replace(self.last, due_at=min(self.last.due_at, due_at))


def promoting(send: Send) -> tuple[int, float | None, list[Any]]:
    """Promote jobs that are due, then ask something in the same round trip.

    Return how many jobs were promoted, in how many seconds the next one is due (None: none waits
    for a time), and the rows of what was asked.
    """
    promote = partial(jobs.send_promotion, max_jobs=PROMOTE_BATCH)
    try:
        [[(promoted, next_due, _)], rows] = turn([promote, send])
    except psycopg.Error as error:
        if not trouble_of(error).spares_rest:
            raise
        # Workers of ours find the row that is to blame.
        logger.warning("http jobs that are due cannot be let go: %s", str(error).strip())
        [rows] = turn([send])
        return 0, None, rows
    return promoted, next_due, rows


def _look() -> LookResult:
    asked_at = time.monotonic()
    promoted, next_due, rows = promoting(claims.send_lane_listing)
    now = time.monotonic()
    due_at = math.inf if next_due is None else asked_at + next_due + 0.001
    if promoted == PROMOTE_BATCH:
        due_at = now
    places = tuple(ReadyPlace._make(row) for row in rows)
    return LookResult(places, asked_at, now - asked_at, due_at)


looks = Looks()
os.register_at_fork(after_in_child=looks.begin_anew)
