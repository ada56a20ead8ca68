"""Statements on workers over HTTP and what they run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_pgjobs.queries.arrays import array_text, text_array_text
from django_pgjobs.queries.claims import ClaimedRow
from django_pgjobs.queries.cursor import Cursor, execute

# All of a job is wanted, whatever its task.
DETAILED = {"detailed": True, "detailed_paths": "{}"}


class RemoteWorkerRow(NamedTuple):
    """What a live worker over HTTP says of itself, and what is asked of it."""

    name: str
    queues: list[str]
    task_paths: list[str]
    backends: list[str]
    is_listening: bool
    is_quiet: bool
    is_stopping: bool


class Beat(NamedTuple):
    """What a renewal says: what is asked of the worker, when the next lease of another ends.

    *ages* is how many seconds ago the worker named each attempt (`attempt_name`).
    """

    is_quiet: bool
    is_stopping: bool
    next_expiry: float | None
    ages: dict[str, float]


class Assigned(NamedTuple):
    """A job that somebody runs, and for how many seconds by now."""

    row: ClaimedRow
    ran: float
    is_cancelling: bool


def attempt_name(job_id: int, claim: int) -> str:
    """Return what a worker's row calls an attempt: another one of the job is not named by it."""
    return f"{job_id}.{claim}"


def send_worker(cursor: Cursor, worker_id: int, *, token_id: int) -> None:
    """Send the question what a worker is; no row if it is not the token's, or its lease is over."""
    execute(cursor, "get_remote_worker", {"id": worker_id, "token_id": token_id})


def send_beat(
    cursor: Cursor,
    worker_id: int,
    *,
    token_id: int,
    lease: float,
    silent: float,
    named: Iterable[str],
) -> None:
    """Send the renewal of a lease and which attempts the worker named; no row if it is lost.

    What was named *silent* seconds ago or before is forgotten.
    """
    params = {
        "id": worker_id,
        "token_id": token_id,
        "lease": lease,
        "silent": silent,
        "named": text_array_text(named),
    }
    execute(cursor, "renew_remote_lease", params)


def beat_of(rows: Sequence[Any]) -> Beat | None:
    """Return what the renewal said, None if the lease is lost."""
    if not rows:
        return None
    [(is_quiet, is_stopping, next_expiry, ages)] = rows
    return Beat(is_quiet, is_stopping, next_expiry, json.loads(ages))


def send_assigned(cursor: Cursor, claims: Sequence[tuple[int, int]]) -> None:
    """Send the question which of some jobs are still run under these claims (id, claim)."""
    params = {
        "ids": array_text(job_id for job_id, _ in claims),
        "claims": array_text(claim for _, claim in claims),
    }
    execute(cursor, "list_assigned", params | DETAILED)


class Reported(NamedTuple):
    """What a running attempt has reported, as JSON text, *ran* seconds after it began or before."""

    id: int
    claim: int
    progress: str | None
    now: datetime
    ran: float


def send_reported(cursor: Cursor, claims: Iterable[tuple[int, int]]) -> None:
    """Send the question what the attempts of these jobs (id, claim) have reported."""
    pairs = list(claims)
    params = {
        "ids": array_text(job_id for job_id, _ in pairs),
        "claims": array_text(claim for _, claim in pairs),
    }
    execute(cursor, "list_progress", params)


def send_held(cursor: Cursor, worker_id: int, *, max_jobs: int) -> None:
    """Send the question what a worker runs, the oldest first."""
    execute(cursor, "list_held", {"worker_id": worker_id, "max_jobs": max_jobs} | DETAILED)


def assigned_rows(rows: Sequence[Any], asked_at: float) -> list[Assigned]:
    """Return what either of these questions, sent at *asked_at*, was answered with."""
    return [
        Assigned(ClaimedRow._make((*row, asked_at)), max(0.0, ran), is_cancelling)
        for *row, ran, is_cancelling in rows
    ]


def send_abandonment(cursor: Cursor, worker_id: int, claims: Sequence[tuple[int, int]]) -> None:
    """Send that a worker runs these jobs (id, claim) no more: the rescue takes them."""
    params = {
        "ids": array_text(job_id for job_id, _ in claims),
        "claims": array_text(claim for _, claim in claims),
        "worker_id": worker_id,
    }
    execute(cursor, "abandon_jobs", params)


class Claimable(NamedTuple):
    """Where a job is; *claim* and *worker_id* are None unless it runs."""

    is_ready: bool
    claim: int | None
    worker_id: int | None
    backend: str
    queue_name: str
    urgency: int
    is_async: bool
    lane: str | None
    task_path: str


def send_claimable(cursor: Cursor, job_id: int) -> None:
    """Send the question where a job is; the row is Claimable."""
    execute(cursor, "find_claimable", {"id": job_id})
