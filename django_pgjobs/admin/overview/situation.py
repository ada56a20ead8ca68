"""Reads what the warnings of the Overview are judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from django_pgjobs.admin.overview.live import kept
from django_pgjobs.admin.overview.rules import (
    BEFORE_SECONDS,
    GROWTH_SECONDS,
    LEAST_FAILED,
    LEAST_GROWTH,
    RECENT_SECONDS,
    WaitingQueue,
)
from django_pgjobs.control.stuck import (
    LEAST_SECONDS,
    MAX_LOOKED_AT,
    WINDOW_SECONDS,
    Stuck,
    judge,
    usual_by_task,
)
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.queries.budget import apart
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.signs import Ended, Past, Signs, list_past, list_signs

# Seconds for which it is remembered what was usual in the last days: that reads every row of the
# statistics of these days.
STEADY_SECONDS = 300
# Of a task of which more jobs failed, some are left out.
MAX_FAILED_JOBS = 10_000
MAX_ROWS = 200
# Live jobs, the oldest, that are looked at for such as wait in vain.
MAX_LIVE_JOBS = 10_000
# Lanes with keys whose first jobs are asked for limits that are not there.
MAX_LANES = 200
# Queues, those with the most ready jobs, that are looked at for a backlog that grows.
MAX_BACKLOGS = 20

T = TypeVar("T")


class Seen(NamedTuple):
    """What was read: signs of trouble, jobs that look stuck, and what ended a day *before* by
    task, if jobs fail now.
    """

    signs: Signs
    stuck: list[Stuck]
    before: Mapping[str, Ended]


def read_signs(cursor: Cursor, waiting: Iterable[WaitingQueue]) -> Seen:
    """Ask the database, within a time budget; *waiting* are the jobs of queues that may run."""
    signs = list_signs(
        cursor,
        recent=RECENT_SECONDS,
        least=LEAST_FAILED,
        max_jobs=MAX_FAILED_JOBS,
        max_rows=MAX_ROWS,
        queue_names=_backlogs(waiting),
        sampled=GROWTH_SECONDS,
        max_live=MAX_LIVE_JOBS,
        max_lanes=MAX_LANES,
        long_seconds=LEAST_SECONDS,
        max_runs=MAX_LOOKED_AT,
    )
    past = _steady("past", lambda: _read_past(cursor)) if signs.failing or signs.long_runs else None
    if past is None:
        # Nobody can say then whether that many fail, or run for so long, as ever.
        return Seen(signs._replace(failing=[]), judge(signs.long_runs, {}), {})
    return Seen(signs, judge(signs.long_runs, usual_by_task(past.runs)), past.ended)


def _read_past(cursor: Cursor) -> Past:
    earliest = RECENT_SECONDS + BEFORE_SECONDS
    return list_past(cursor, seconds=WINDOW_SECONDS, earliest=earliest, latest=RECENT_SECONDS)


def _steady(name: str, read: Callable[[], T]) -> T | None:
    """Return what is kept for long, None if it takes too long: the rest of the page goes on."""

    def make() -> T:
        with apart(job_database()):
            return read()

    try:
        return kept(name, make, seconds=STEADY_SECONDS)
    except TooSlow:
        return None


def _backlogs(waiting: Iterable[WaitingQueue]) -> list[str]:
    """Return the names of the queues whose backlog may be one that has grown."""
    ready: dict[str, int] = {}
    for row in waiting:
        ready[row.queue_name] = ready.get(row.queue_name, 0) + row.ready
    long = [name for name, jobs in ready.items() if jobs >= LEAST_GROWTH]
    return sorted(long, key=lambda name: -ready[name])[:MAX_BACKLOGS]
