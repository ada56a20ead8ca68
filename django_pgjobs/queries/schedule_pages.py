"""Questions of the pages of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch

MAX_SCHEDULES = 100
MAX_RUNS = 20


class RunRow(NamedTuple):
    """An occurrence that has come; *status* is None without a job, or if that was deleted."""

    schedule: str
    scheduled_for: datetime
    outcome: str
    note: str
    job_id: int | None
    status: str | None


def list_runs(cursor: Cursor, schedules: Sequence[str]) -> dict[str, list[RunRow]]:
    """Return the newest occurrences of each schedule, at most MAX_RUNS, the newest first."""
    runs: dict[str, list[RunRow]] = {name: [] for name in schedules}
    params = {"schedules": list(schedules), "max_runs": MAX_RUNS}
    for row in fetch(cursor, "list_schedule_runs", params):
        runs[row[0]].append(RunRow._make(row))
    return runs
