"""Reads what warnings are judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

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
from django_pgjobs.queries.overview import Installation, get_installation
from django_pgjobs.queries.queue_pages import QueueRow
from django_pgjobs.queries.signs import Ended, Past, Signs, list_past, list_signs
from django_pgjobs.warnings.rules import (
    BEFORE_SECONDS,
    GROWTH_SECONDS,
    LEAST_FAILED,
    LEAST_GROWTH,
    OLD_TRANSACTION_SECONDS,
    RECENT_SECONDS,
    UNSEALED_SECONDS,
    WaitingQueue,
    late_queues,
    waiting_of,
    without_vain,
)

# Of a task of which more jobs failed, some are left out.
MAX_FAILED_JOBS = 10_000
MAX_ROWS = 200
# Live jobs, the oldest, that are looked at for such as wait in vain.
MAX_LIVE_JOBS = 10_000
# Lanes with keys whose first jobs are asked for limits that are not there.
MAX_LANES = 200
# Queues, those with the most ready jobs, that are looked at for a backlog that grows.
MAX_BACKLOGS = 20

# Reads what was usual in the last days, or returns what somebody has kept of that.
Keep = Callable[[Callable[[], Past]], Past]


class Situation(NamedTuple):
    """What was read: *signs* of trouble, jobs that look *stuck*, and what ended a day *before* by
    task, if jobs fail now.
    """

    facts: Installation
    waiting: Sequence[WaitingQueue] = ()
    signs: Signs = Signs([], [], [], [], {})
    stuck: Sequence[Stuck] = ()
    before: Mapping[str, Ended] = {}


def read_anew(read: Callable[[], Past]) -> Past:
    """Keep nothing."""
    return read()


def read_situation(
    cursor: Cursor, queues: Iterable[QueueRow], *, max_workers: int, keep: Keep = read_anew
) -> Situation:
    """Ask the database, within a time budget; so many workers are named.

    What was usual takes every row of the statistics of some days: whoever asks often gives *keep*.
    """
    facts = get_installation(
        cursor,
        max_workers=max_workers,
        old_seconds=OLD_TRANSACTION_SECONDS,
        unsealed_seconds=UNSEALED_SECONDS,
    )
    rows = waiting_of(queues)
    signs = list_signs(
        cursor,
        recent=RECENT_SECONDS,
        least=LEAST_FAILED,
        max_jobs=MAX_FAILED_JOBS,
        max_rows=MAX_ROWS,
        queue_names=_backlogs(rows),
        waiting_names=list(late_queues(rows, facts.now)),
        sampled=GROWTH_SECONDS,
        max_live=MAX_LIVE_JOBS,
        max_lanes=MAX_LANES,
        long_seconds=LEAST_SECONDS,
        max_runs=MAX_LOOKED_AT,
    )
    waiting = [without_vain(row, signs.vain.get(row.queue_name)) for row in rows]
    past = _usual(cursor, keep) if signs.failing or signs.long_runs else None
    if past is None:
        # Nobody can say then whether that many fail, or run for so long, as ever.
        stuck, signs = judge(signs.long_runs, {}), signs._replace(failing=[])
        return Situation(facts, waiting, signs, stuck)
    stuck = judge(signs.long_runs, usual_by_task(past.runs))
    return Situation(facts, waiting, signs, stuck, past.ended)


def _usual(cursor: Cursor, keep: Keep) -> Past | None:
    """Return what is usual, None if that takes too long: all else goes on."""

    def read() -> Past:
        with apart(job_database()):
            return _read_past(cursor)

    try:
        return keep(read)
    except TooSlow:
        return None


def _read_past(cursor: Cursor) -> Past:
    earliest = RECENT_SECONDS + BEFORE_SECONDS
    return list_past(cursor, seconds=WINDOW_SECONDS, earliest=earliest, latest=RECENT_SECONDS)


def _backlogs(waiting: Iterable[WaitingQueue]) -> list[str]:
    """Return the names of the queues whose backlog may be one that has grown."""
    long = [row for row in waiting if row.ready >= LEAST_GROWTH]
    return [row.queue_name for row in sorted(long, key=lambda row: -row.ready)[:MAX_BACKLOGS]]
