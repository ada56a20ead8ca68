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
    Stuck,
    judge,
    usual_times,
)
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.signs import Ended, Signs, list_signs, sum_ended
from django_pgjobs.queries.stuck import list_long_runs

# Seconds for which it is remembered what was usual in the last days: that reads every row of the
# statistics of these days.
STEADY_SECONDS = 300
# Seconds that this may take.
STEADY_BUDGET_SECONDS = 1.0
# Of a task of which more jobs failed, some are left out.
MAX_FAILED_JOBS = 10_000
MAX_ROWS = 200
# Live jobs, the oldest, that are looked at for such as wait in vain.
MAX_LIVE_JOBS = 10_000
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


def read_signs(cursor: Cursor, waiting: Iterable[WaitingQueue], *, has_missing: bool) -> Seen:
    """Ask the database; *waiting* are the jobs of queues that may run.

    *has_missing*: some of them may wait for a rate limit that lets none go.
    """
    signs = list_signs(
        cursor,
        recent=RECENT_SECONDS,
        least=LEAST_FAILED,
        max_jobs=MAX_FAILED_JOBS,
        max_rows=MAX_ROWS,
        queue_names=_backlogs(waiting),
        sampled=GROWTH_SECONDS,
        max_live=MAX_LIVE_JOBS if has_missing else 0,
    )
    before = _before(cursor) if signs.failing else {}
    if before is None:
        signs = signs._replace(failing=[])
    return Seen(signs, _read_stuck(cursor), before or {})


def _read_stuck(cursor: Cursor) -> list[Stuck]:
    runs = list_long_runs(cursor, seconds=LEAST_SECONDS, max_jobs=MAX_LOOKED_AT)
    usual = _steady("usual", lambda: usual_times(cursor)) if runs else {}
    return judge(runs, usual or {})


def _before(cursor: Cursor) -> dict[str, Ended] | None:
    earliest = RECENT_SECONDS + BEFORE_SECONDS
    return _steady(
        "ended-before", lambda: sum_ended(cursor, earliest=earliest, latest=RECENT_SECONDS)
    )


def _steady(name: str, read: Callable[[], T]) -> T | None:
    """Return what is kept for long, None if it takes too long: the rest of the page goes on."""

    def make() -> T:
        with time_budget(job_database(), STEADY_BUDGET_SECONDS):
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
