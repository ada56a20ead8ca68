"""What a claim returns of a job whose code sees all of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django_pgjobs.queries.claims import ClaimedRow
from django_pgjobs.queries.jobs import JobRow


def row_of_claim(row: ClaimedRow, detail: dict[str, Any]) -> JobRow:
    """Return a claimed job in full, of what the claim returned of it.

    Raise ValueError if a time is none that Python knows.
    """

    def instant(name: str) -> datetime | None:
        return datetime.fromisoformat(detail[name]) if detail[name] else None

    return JobRow(
        id=row.id,
        status="running",
        task_path=row.task_path,
        queue_name=row.queue_name,
        priority=row.priority,
        run_after=instant("run_after"),
        enqueued_at=datetime.fromisoformat(detail["enqueued_at"]),
        started_at=instant("started_at"),
        last_attempted_at=instant("last_attempted_at"),
        finished_at=None,
        max_attempts=row.max_attempts,
        timeout=row.timeout,
        correlation_id=row.correlation_id,
        tags=detail["tags"],
        args=row.args,
        kwargs=row.kwargs,
        metadata=detail["metadata"],
        errors=detail["errors"],
        result=None,
        worker_ids=detail["worker_ids"],
    )
