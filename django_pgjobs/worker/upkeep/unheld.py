"""Giving back what a claim took whose answer was lost.

For the length of a lease after it, everything that the table says we run and that we do not hold
goes back. A claim whose answer is on its way must not look like that, so the pump holds a lock
until it holds the jobs.

Once per lease the same is done without such a claim: somebody may have written a row that says we
run it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import psycopg

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.values.words import counted
from django_pgjobs.worker.claiming.outlook import Outlook
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.turns.turn import Rows, Turn
from django_pgjobs.worker.upkeep.duty import Duty

logger = get_logger(__name__)

RETURN_BATCH = 1_000
PAUSE_SECONDS = 1.0
LOST_NOTE = "released: the connection was lost during the claim"
STRAY_NOTE = "released: its worker had not claimed it"
# How long it waits for a claim under way before the upkeep goes on with other duties.
PATIENCE_SECONDS = 0.05


class Unheld(Duty):
    """Returns what the worker runs in the table and does not hold."""

    travels_alone = True

    def __init__(
        self, state: WorkerState, outlook: Outlook, connection: OwnConnection, refusals: Refusals
    ) -> None:
        self._state = state
        self._outlook = outlook
        self._connection = connection
        self._refusals = refusals
        # When the last return that was answered was sent.
        self._returned_at = -math.inf
        # When the next one is due without a lost claim.
        self._sweep_at = time.monotonic() + state.options.lease

    @property
    def lock(self) -> AbstractContextManager[bool]:
        return _hold(self._state.claiming)

    @property
    def is_settled(self) -> bool:
        """Has there been a return since the last claim without an answer?"""
        return self._returned_at >= self._outlook.claim_lost_at

    def due_at(self, now: float) -> float:
        if not self.is_settled:
            return 0.0
        if self._follows_loss(now):
            return self._returned_at + PAUSE_SECONDS
        # A worker that ends may have left jobs to the rescue, which counts them.
        return math.inf if self._state.stopping else self._sweep_at

    def plan(self, turn: Turn) -> None:
        sent_at = time.monotonic()
        held = [*self._state.held, *self._state.unwritable]
        is_lost = self._follows_loss(sent_at)
        note = LOST_NOTE if is_lost else STRAY_NOTE
        send = partial(jobs.send_release_unheld, worker_id=turn.worker_id, note=note)
        note_returned = partial(self._note_returned, sent_at, is_lost)

        def release(size: int, passed_over: list[int], *, acts: bool = True) -> Sequence[Rows]:
            ids = held + passed_over
            [rows] = self._connection.round_trip(
                [partial(send, held_ids=ids, max_jobs=size, acts=acts)]
            )
            return rows

        def find(passed_over: list[int]) -> dict[int, str]:
            return {row[0]: "" for row in release(1, passed_over, acts=False)}

        def release_apart(error: psycopg.Error) -> None:
            pages = self._refusals.in_pages(self._connection, release, size=RETURN_BATCH, find=find)
            for rows in pages:
                note_returned(list(rows))

        known = [*held, *self._refusals.passed_over()]
        returned = partial(send, held_ids=known, max_jobs=RETURN_BATCH)
        turn.begin(release_apart).add(returned, note_returned)

    def _follows_loss(self, now: float) -> bool:
        """Was there a claim without an answer within the last lease?"""
        return now < self._outlook.claim_lost_at + self._state.options.lease

    def _note_returned(self, sent_at: float, is_lost: bool, rows: Rows) -> None:
        self._returned_at = sent_at
        self._sweep_at = sent_at + self._state.options.lease
        if rows:
            what = "of a claim whose answer was lost" if is_lost else "that it had not claimed"
            jobs = counted(len(rows), "job")
            logger.warning("worker=%s gave back %s %s", self._state.name, jobs, what)


@contextmanager
def _hold(lock: threading.Lock) -> Iterator[bool]:
    is_held = lock.acquire(timeout=PATIENCE_SECONDS)
    try:
        yield is_held
    finally:
        if is_held:
            lock.release()
