"""Reads what the warnings of the Overview are judged by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django_pgjobs.admin.overview.live import kept
from django_pgjobs.admin.overview.rules import (
    BEFORE_SECONDS,
    GROWTH_SECONDS,
    LEAST_FAILED,
    LEAST_GROWTH,
    RECENT_SECONDS,
    Waiting,
)
from django_pgjobs.control.stuck import (
    LEAST_SECONDS,
    MAX_LOOKED_AT,
    Stuck,
    judge,
    usual_times,
)
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.numbers import Sample, list_samples
from django_pgjobs.queries.signs import Signs, list_signs
from django_pgjobs.queries.stuck import list_long_runs

# Seconds for which it is remembered how long jobs of some tasks usually run.
USUAL_KEPT_SECONDS = 60
# Of a task of which more jobs failed, some are left out.
MAX_FAILED_JOBS = 10_000
MAX_ROWS = 200
# Queues, those with the most ready jobs, that are looked at for a backlog that grows.
MAX_BACKLOGS = 20


class Seen(NamedTuple):
    """What was read: signs of trouble, jobs that look stuck, samples of queues by time."""

    signs: Signs
    stuck: list[Stuck]
    samples: Mapping[str, Sequence[Sample]]


def read_signs(cursor: Cursor, waiting: Iterable[Waiting]) -> Seen:
    """Ask the database; *waiting* are the jobs of queues that may run."""
    signs = list_signs(
        cursor,
        recent=RECENT_SECONDS,
        before=BEFORE_SECONDS,
        least=LEAST_FAILED,
        max_jobs=MAX_FAILED_JOBS,
        max_rows=MAX_ROWS,
    )
    samples: dict[str, list[Sample]] = {}
    names = _backlogs(waiting)
    found = list_samples(cursor, seconds=GROWTH_SECONDS, queue_names=names) if names else ()
    for sample in found:
        samples.setdefault(sample.queue_name or "", []).append(sample)
    return Seen(signs, read_stuck(cursor), samples)


def read_stuck(cursor: Cursor) -> list[Stuck]:
    """Return the jobs that look stuck; what is usual is asked for once a minute."""
    runs = list_long_runs(cursor, seconds=LEAST_SECONDS, max_jobs=MAX_LOOKED_AT)
    paths = sorted({run.task_path for run in runs})
    digest = hashlib.blake2b(repr(paths).encode(errors="replace"), digest_size=16).hexdigest()
    usual = kept(f"usual:{digest}", lambda: usual_times(cursor, paths), seconds=USUAL_KEPT_SECONDS)
    return judge(runs, usual)


def _backlogs(waiting: Iterable[Waiting]) -> list[str]:
    """Return the names of the queues whose backlog may be one that has grown."""
    ready: dict[str, int] = {}
    for row in waiting:
        ready[row.queue_name] = ready.get(row.queue_name, 0) + row.ready
    long = [name for name, jobs in ready.items() if jobs >= LEAST_GROWTH]
    return sorted(long, key=lambda name: -ready[name])[:MAX_BACKLOGS]
