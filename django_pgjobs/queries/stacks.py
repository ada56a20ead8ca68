"""Asking workers where a running job is, and their answers."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, execute, fetch

# Questions that a worker answers at a time.
MAX_ASKED = 100
KEPT_SECONDS = 86_400.0


class StackRow(NamedTuple):
    """Where a job was; *written_at* None: its worker has not answered, *is_late*: for too long.

    Without a *stack* the worker holds the job and has not begun it, or it was just ending.
    """

    requested_at: datetime
    written_at: datetime | None
    stack: str
    is_late: bool


def ask_for_stack(cursor: Cursor, job_id: int) -> bool:
    """Ask where a job is; return False if it does not run, or its worker is gone."""
    execute(cursor, "delete_old_stacks", {"seconds": KEPT_SECONDS})
    return bool(fetch(cursor, "ask_for_stack", {"job_id": job_id}))


def get_stack(cursor: Cursor, job_id: int) -> StackRow | None:
    """Return where a running job was, None if nobody asked about this attempt."""
    rows = fetch(cursor, "get_stack", {"job_id": job_id})
    return StackRow._make(rows[0]) if rows else None


def list_wanted(cursor: Cursor, worker_id: int) -> list[tuple[int, int]]:
    """Return (id, claim) of the jobs of a worker of which somebody asks where they are."""
    params = {"worker_id": worker_id, "max_jobs": MAX_ASKED}
    return [(job_id, claim) for job_id, claim in fetch(cursor, "list_wanted_stacks", params)]


def write_stack(cursor: Cursor, job_id: int, claim: int, stack: str) -> None:
    """Answer where a job is."""
    execute(cursor, "write_stack", {"job_id": job_id, "claim": claim, "stack": stack})
