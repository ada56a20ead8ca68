"""Counting batches of jobs, in the turn that finishes some of them.

What is noted of a batch stays until somebody counts it, so nothing here has to be remembered: what
is forgotten when the worker ends, the next look of the upkeep finds (`worker.upkeep.batches`). A
batch is counted less often the more jobs it waits for: that takes a hundredth of a second for each
thousand of them, which no installation is faster than.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import psycopg

from django_pgjobs.queries import batches
from django_pgjobs.queries.batches import Settled
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.turns.turn import Rows, Turn

logger = get_logger(__name__)

# How long a batch is left alone for each job that it waits for, and at most; and one that is not
# sealed.
SECONDS_PER_JOB, MAX_SECONDS, UNSEALED_SECONDS = 0.00001, 0.25, 1.0
# A batch that somebody else holds is retried after this pause, which doubles each time; after so
# many times it is left to the next look.
MISSED_SECONDS, MAX_MISSES = 0.005, 7
# How many batches are known at a time.
MOST_KNOWN = 10_000


class Due(NamedTuple):
    """When to count a batch, and how often in a row somebody else held it."""

    at: float
    misses: int = 0


class Settling:
    """Which batches the pump is to count, and when."""

    def __init__(self, worker_name: str, on_queues: Callable[[list[str]], None]) -> None:
        self._worker_name = worker_name
        self._on_queues = on_queues
        # What other threads ask for.
        self._asked: deque[int] = deque()
        # Batches that have something to count. They stay here until the answer has come.
        self._due: dict[int, Due] = {}
        # When batches that were counted may be counted again at the earliest.
        self._not_before: dict[int, float] = {}

    def ask(self, batch_ids: Iterable[int]) -> None:
        """Count these batches soon; safe from any thread."""
        self._asked.extend(batch_ids)

    @property
    def is_under_way(self) -> bool:
        """Are there batches to be counted, or is the answer on its way?"""
        return bool(self._asked) or bool(self._due)

    @property
    def due_at(self) -> float:
        """When to count next; infinite if there is nothing."""
        if self._asked:
            return 0.0
        return min((due.at for due in self._due.values()), default=math.inf)

    def plan(self, turn: Turn, ended: Iterable[Attempt], connection: OwnConnection) -> None:
        """Let what is due be counted with the turn, which finishes *ended*.

        If the server refuses that, *connection* counts each batch alone.
        """
        now = time.monotonic()
        while self._asked:
            # Due before it is taken, so that another thread always sees it in one of them.
            self._due.setdefault(self._asked[0], Due(0.0))
            self._asked.popleft()
        for batch_id in {attempt.row.batch_id for attempt in ended}:
            if batch_id is not None:
                due = self._due.get(batch_id, Due(0.0))
                self._due[batch_id] = due._replace(at=self._not_before.get(batch_id, 0.0))
        ids = [batch_id for batch_id, due in self._due.items() if due.at <= now]
        if ids:
            turn.begin(partial(self._settle_apart, ids, connection)).add(
                partial(batches.send_settlement, ids=ids), partial(self._note, ids)
            )

    def _note(self, ids: list[int], rows: Rows) -> None:
        now = time.monotonic()
        settled = [Settled._make(row) for row in rows]
        # Before the batches are taken out, so that another thread always sees one or the other.
        self._on_queues([each.queue_name for each in settled if each.queue_name is not None])
        again: dict[int, Due] = {}
        for batch_id in ids:
            self._not_before.pop(batch_id, None)
        for each in settled:
            if each.batch_id is None:
                continue
            if each.is_missed:
                misses = self._due.get(each.batch_id, Due(now)).misses + 1
                if misses <= MAX_MISSES:
                    pause = MISSED_SECONDS * 2 ** (misses - 1)
                    again[each.batch_id] = Due(now + pause, misses)
            elif each.goes_on:
                again[each.batch_id] = Due(now + MISSED_SECONDS)
            else:
                self._not_before[each.batch_id] = now + _pause_of(each.unfinished)
        if len(self._not_before) > MOST_KNOWN:
            self._not_before.clear()
        self._due.update(again)
        for batch_id in ids:
            if batch_id not in again:
                self._due.pop(batch_id, None)

    def _settle_apart(
        self, ids: list[int], connection: OwnConnection, error: psycopg.Error
    ) -> None:
        """Count batches one by one, a level at a time, to find the one that raises."""
        for batch_id in ids:
            try:
                rows = self._settle_alone(batch_id, connection)
            except psycopg.Error as refusal:
                if not trouble_of(refusal).spares_rest:
                    raise
                # As one that somebody else holds: tried again a few times.
                missed = Settled(
                    batch_id, is_missed=True, goes_on=False, unfinished=None, queue_name=None
                )
                rows = [missed]
            self._note([batch_id], rows)

    def _settle_alone(self, batch_id: int, connection: OwnConnection) -> Rows:
        send = partial(batches.send_settlement, ids=[batch_id], levels=1)
        try:
            [rows] = connection.round_trip([send])
        except psycopg.Error as refusal:
            if trouble_of(refusal) is not Trouble.REFUSED:
                raise
            self._mark_broken(batch_id, str(refusal).strip(), connection)
            return []
        return rows

    def _mark_broken(self, batch_id: int, reason: str, connection: OwnConnection) -> None:
        logger.log(
            logging.ERROR,
            "worker=%s batch=%d cannot be counted, it is left alone: %s",
            self._worker_name,
            batch_id,
            reason,
        )
        send = partial(batches.send_broken, batch_id=batch_id, reason=reason[:1000])
        connection.round_trip([send])


def _pause_of(unfinished: int | None) -> float:
    """Return how long to leave a batch alone that waits for so many jobs; None: not sealed."""
    if unfinished is None:
        return UNSEALED_SECONDS
    return min(MAX_SECONDS, unfinished * SECONDS_PER_JOB)
