"""What the list of jobs reads besides its rows: counts of its tabs, and names for its filters.

Which jobs a person may see is a QuerySet, so the inner SELECT is what Django's compiler made
of one; it bounds itself what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch
from django_pgjobs.sql.terms import written_out


class TabCounts(NamedTuple):
    """Jobs by the tabs of the list; *due* and *live* are how many were read for the others."""

    cancelled: int
    failed: int
    successful: int
    running: int
    due: int
    scheduled: int
    retrying: int
    live: int
    blocked: int
    ready: int

    @property
    def all(self) -> int:
        """The sum: each job is of one tab, and where a count stops it is more than is shown."""
        waiting = self.scheduled + self.retrying + self.blocked + self.ready
        return self.cancelled + self.failed + self.successful + self.running + waiting


# {jobs} is what a person may see, {cap} and {max_read} are numbers. An order makes it the index
# that is read up to the limit, and not the table; a limit that the planner cannot see lets it
# walk the index instead of sorting all that matches.
_COUNT_TABS = written_out("""
SELECT
    (SELECT count(*) FROM (
        SELECT FROM {jobs} WHERE job.status = 'cancelled' ORDER BY job.finished_at LIMIT {cap}
    ) AS counted),
    (SELECT count(*) FROM (
        SELECT FROM {jobs} WHERE job.status = 'failed' ORDER BY job.finished_at LIMIT {cap}
    ) AS counted),
    (SELECT count(*) FROM (
        SELECT FROM {jobs} WHERE job.status = 'successful' ORDER BY job.finished_at LIMIT {cap}
    ) AS counted),
    (SELECT count(*) FROM (
        SELECT FROM {jobs} WHERE job.status = 'running' ORDER BY job.worker_id LIMIT {cap}
    ) AS counted),
    due.jobs, due.scheduled, due.retrying, live.jobs, live.blocked, live.ready
FROM (
    SELECT
        count(*) AS jobs,
        count(*) FILTER (WHERE {one.is_scheduled}) AS scheduled,
        count(*) FILTER (WHERE {one.is_retrying}) AS retrying
    FROM (
        SELECT job.status, job.due_at, job.hold, job.attempts FROM {jobs}
        WHERE job.status = 'ready' AND job.due_at IS NOT NULL
        ORDER BY job.due_at LIMIT (SELECT {max_read})
    ) AS one
) AS due
CROSS JOIN (
    SELECT
        count(*) AS jobs,
        count(*) FILTER (WHERE {one.is_blocked}) AS blocked,
        count(*) FILTER (WHERE {one.is_ready}) AS ready
    FROM (
        SELECT job.hold, job.due_at, job.status FROM {jobs}
        WHERE job.status IN ('ready', 'running') LIMIT {max_read}
    ) AS one
) AS live
""")
# The columns that the statement above needs of *jobs*, in this order.
TAB_COLUMNS = ("status", "due_at", "hold", "attempts", "worker_id", "finished_at")


def count_tabs(
    cursor: Cursor, select: str, params: Sequence[Any], *, cap: int, max_read: int
) -> TabCounts:
    """Count the jobs that *select* yields, with TAB_COLUMNS, each tab up to *cap*.

    For tabs without an index of their own no more than *max_read* are read.
    """
    columns = ", ".join(TAB_COLUMNS)
    parts = _COUNT_TABS.format(jobs="\0", cap=int(cap), max_read=int(max_read)).split("\0")
    # The only composed part is what Django's compiler made.
    cursor.execute(f"({select}) AS job ({columns})".join(parts), [*params] * (len(parts) - 1))
    [row] = cursor.fetchall()
    return TabCounts._make(row)


def list_pairs(cursor: Cursor, select: str, params: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the different rows of *select*, which has two columns of text."""
    cursor.execute(
        f"SELECT DISTINCT seen.kind, seen.name FROM ({select}) AS seen (kind, name)"  # noqa: S608
        " ORDER BY seen.kind, seen.name",
        params,
    )
    return cursor.fetchall()


def find_job_at(cursor: Cursor, moment: datetime) -> int | None:
    """Return roughly the id of the last job that was enqueued by *moment*, None without jobs."""
    rows = fetch(cursor, "find_job_at", {"moment": moment})
    return rows[0][0] if rows else None
