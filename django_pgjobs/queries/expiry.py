"""The statement that ends waiting jobs which have expired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django_pgjobs.queries import dependencies
from django_pgjobs.queries.arrays import array_text
from django_pgjobs.queries.cursor import Cursor, fetch

EXPIRED = "expired: not started in time"


class Expired(NamedTuple):
    """A waiting job that was ended because it was too late to begin it."""

    id: int
    task_path: str
    queue_name: str
    attempts: int
    correlation_id: str


def expire_jobs(cursor: Cursor, *, max_jobs: int, passed_over: Sequence[int] = ()) -> list[Expired]:
    """End a page of waiting jobs that have expired, and return them."""
    rows = _expire(cursor, max_jobs, passed_over, acts=True)
    dependencies.resolve_rest(cursor, rows)
    return [Expired._make(row[:-2]) for row in rows if row[0] is not None]


def find_expired_job(cursor: Cursor, *, passed_over: Sequence[int]) -> list[int]:
    """Return the id of the job that `expire_jobs` would end first, if there is one."""
    return [row[0] for row in _expire(cursor, 1, passed_over, acts=False)]


def _expire(cursor: Cursor, max_jobs: int, passed_over: Sequence[int], *, acts: bool) -> list[Any]:
    params = {
        "acts": acts,
        "max_jobs": max_jobs,
        "passed_over": array_text(passed_over),
        "note": EXPIRED,
        "max_dependencies": dependencies.PAGE,
    }
    return fetch(cursor, "expire_jobs", params)
