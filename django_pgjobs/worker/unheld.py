"""Giving back what a claim took whose answer was lost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import psycopg

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.careful import in_pages
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turn import Rows, Turn

logger = get_logger(__name__)

RETURN_BATCH = 1_000


def plan_return(turn: Turn, connection: OwnConnection, state: WorkerState) -> None:
    """Let the return of all that the worker runs and does not hold travel with the turn."""
    held = [*state.held, *state.unwritable]
    send = partial(jobs.send_release_unheld, worker_id=turn.worker_id)

    def note(rows: Rows) -> None:
        if rows:
            logger.warning(
                "worker=%s gave back %d jobs of a claim whose answer was lost",
                state.name,
                len(rows),
            )

    def release(size: int, passed_over: list[int], *, acts: bool = True) -> Sequence[Rows]:
        ids = held + passed_over
        [rows] = connection.round_trip([partial(send, held_ids=ids, max_jobs=size, acts=acts)])
        return rows

    def find(passed_over: list[int]) -> list[int]:
        return [row[0] for row in release(1, passed_over, acts=False)]

    def leave(job_id: int, error: psycopg.Error) -> None:
        logger.error("job=%s cannot be given back; it is left to rescue: %s", job_id, error)
        state.unwritable.add(job_id)

    def release_apart(error: psycopg.Error) -> None:
        for rows in in_pages(release, size=RETURN_BATCH, find=find, on_refused=leave):
            note(list(rows))

    turn.begin(release_apart).add(partial(send, held_ids=held, max_jobs=RETURN_BATCH), note)
