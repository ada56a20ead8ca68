"""Statements on many jobs at once, for what people change by hand.

Each passes over rows that another transaction has locked, and over jobs whose status is not
the expected one by then.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django_pgjobs.queries import dependencies
from django_pgjobs.queries.crossing import fetch_again_if_crossed
from django_pgjobs.queries.cursor import Cursor, fetch


def pin_jobs(cursor: Cursor) -> tuple[int, datetime]:
    """Return the highest id there is, and the database's time."""
    [(max_id, now)] = fetch(cursor, "pin_jobs", {})
    return max_id, now


def discard_jobs(cursor: Cursor, ids: list[int], *, note: str) -> dict[int, str]:
    """Give up waiting and failed jobs; return id -> status before of those that were."""
    params = {"ids": ids, "note": note, "max_dependencies": dependencies.PAGE}
    rows = fetch_again_if_crossed(cursor, "discard_jobs", params)
    dependencies.resolve_rest(cursor, rows)
    return {job_id: status for job_id, status, *_ in rows if status}


def move_jobs(
    cursor: Cursor, ids: list[int], *, queue_name: str | None, priority: int | None
) -> dict[int, str]:
    """Give waiting jobs another queue or priority; return id -> queue of those that were."""
    params = {"ids": ids, "queue_name": queue_name, "priority": priority}
    return dict(fetch_again_if_crossed(cursor, "move_jobs", params))


def reset_attempts(cursor: Cursor, ids: list[int]) -> list[int]:
    """Let waiting jobs count their attempts from 0 again; return the ids of those that do."""
    return [job_id for (job_id,) in fetch_again_if_crossed(cursor, "reset_attempts", {"ids": ids})]


def delete_jobs(cursor: Cursor, ids: list[int], *, statuses: Collection[str]) -> list[int]:
    """Delete finished jobs with one of *statuses*; return the ids of those that were."""
    params = {"ids": ids, "statuses": list(statuses)}
    return [job_id for (job_id,) in fetch_again_if_crossed(cursor, "delete_jobs", params)]
