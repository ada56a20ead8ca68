"""Reading the statistics: how much ended and came in, how long it took, how much waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch
from django_pgjobs.queries.statistics import (
    MAX_QUEUES,
    MINUTE,
    OTHERS,
    SETTLING_SECONDS,
    upper_bound,
)

# How many seconds after its end a minute is written, at the latest.
CLOSING_SECONDS = 15.0
# What "lately" is: minutes that are over and for which everything is counted.
RECENT_MINUTES = 5
# Up to so many live jobs, and so many that have just finished, are counted one by one.
FEW = 10_000


class Size(NamedTuple):
    """How many jobs of a queue had not finished at a moment; *queue_name* None: of all together."""

    queue_name: str | None
    ready: int
    running: int
    scheduled: int
    retrying: int
    blocked: int
    measured_at: datetime
    is_cut: bool

    @property
    def jobs(self) -> int:
        """All of them."""
        return self.ready + self.running + self.scheduled + self.retrying + self.blocked


class Number(NamedTuple):
    """What ended and came in within a bucket; *upto*: up to when everything is counted."""

    bucket: int
    queue_name: str | None
    task_path: str | None
    enqueued: int
    successful: int
    failed: int
    cancelled: int
    retried: int
    lost: int
    upto: datetime


class Outcomes(NamedTuple):
    """How many jobs ended with each status."""

    successful: int
    failed: int
    cancelled: int


class Sums(NamedTuple):
    """What ended and came in by buckets of time, the last is that of now; and what ended by queue.

    Queues to which something came in are there as well. *times* is what `times_of` returns.
    """

    by_time: list[Number]
    by_queue: dict[str, Outcomes]
    times: dict[str, Times]


class Finished(NamedTuple):
    """How many jobs finished, by name and bucket; None is the name of the others together.

    *bucket* is that of now; *upto*: up to when everything is counted.
    """

    bucket: int
    upto: datetime
    counts: dict[str | None, dict[int, int]]


class Times(NamedTuple):
    """How many attempts waited, and ran, for how long, by classes of time."""

    waits: list[int]
    runs: list[int]


def list_sizes(cursor: Cursor) -> list[Size]:
    """Return what has not finished: of all queues together, then of those with the most jobs."""
    params = {"max_jobs": FEW, "max_queues": MAX_QUEUES}
    return [Size._make(row) for row in fetch(cursor, "list_sizes", params)]


def list_peaks(
    cursor: Cursor, *, seconds: float, step_seconds: int, queue_names: Sequence[str]
) -> dict[str, dict[int, int]]:
    """Return how many jobs of each queue were ready at most, by steps of the last *seconds*.

    A step is the number of *step_seconds* since 1970.
    """
    params = {
        "seconds": seconds,
        "step_seconds": step_seconds,
        "queue_names": list(queue_names),
    }
    found: dict[str, dict[int, int]] = {}
    for name, step, ready in fetch(cursor, "list_peaks", params):
        found.setdefault(name, {})[step] = ready
    return found


def list_statistics(
    cursor: Cursor,
    *,
    seconds: float,
    bucket_seconds: int,
    by_queue: bool = False,
    by_task: bool = False,
) -> list[Number]:
    """Return what ended and came in within the last *seconds*, by buckets of time.

    A bucket is the number of *bucket_seconds* since 1970. The last row is of now, perhaps empty.
    """
    params = {
        "seconds": seconds,
        "bucket_seconds": bucket_seconds,
        "by_queue": by_queue,
        "by_task": by_task,
        "closing": CLOSING_SECONDS,
        "max_jobs": FEW,
    }
    rows = fetch(cursor, "list_statistics", params)
    upto = rows[-1][-1]
    return [Number._make((*row[:-1], upto)) for row in rows]


def sum_statistics(
    cursor: Cursor, *, seconds: float, bucket_seconds: int, times_seconds: float | None = None
) -> Sums:
    """Return what ended and came in within the last *seconds*, by time and by queue.

    Also the times of the last *times_seconds*, without it none.
    """
    params = {
        "seconds": seconds,
        "bucket_seconds": bucket_seconds,
        "by_task": False,
        "closing": CLOSING_SECONDS,
        "max_jobs": FEW,
        "class_seconds": times_seconds,
        "task_paths": None,
    }
    rows = fetch(cursor, "sum_statistics", params)
    by_time = [Number._make(row[:-2]) for row in rows if row[0] is not None]
    others = rows[len(by_time) :]
    return Sums(
        by_time,
        {row[1]: Outcomes._make(row[4:7]) for row in others if row[-1] is None},
        {row[1]: Times(*row[-2:]) for row in others if row[-1] is not None},
    )


def list_largest(
    cursor: Cursor, *, seconds: float, bucket_seconds: int, by_task: bool, max_names: int
) -> Finished:
    """Return what finished in that time of the queues or tasks with the most jobs, and the rest."""
    params = {
        "seconds": seconds,
        "bucket_seconds": bucket_seconds,
        "by_task": by_task,
        "max_names": max_names,
        "others": OTHERS[0],
        "closing": CLOSING_SECONDS,
        "max_jobs": FEW,
    }
    *rows, (_, [bucket], _, upto) = fetch(cursor, "list_largest", params)
    counts = {name: dict(zip(buckets, jobs, strict=True)) for name, buckets, jobs, _ in rows}
    return Finished(bucket, upto, counts)


def times_of(
    cursor: Cursor,
    *,
    seconds: float,
    by_task: bool = False,
    task_paths: Sequence[str] | None = None,
) -> dict[str, Times]:
    """Return how long attempts took that ended within the last *seconds*, by queue or task.

    *task_paths* None: those of all tasks.
    """
    params = {
        "class_seconds": seconds,
        "by_task": by_task,
        "task_paths": None if task_paths is None else list(task_paths),
    }
    rows = fetch(cursor, "list_classes", params)
    return {name: Times(waits, runs) for name, waits, runs in rows}


def recent_minutes(until: datetime) -> range:
    """Return the last minutes that were over then, by their numbers since 1970."""
    last = int(until.timestamp() // MINUTE)
    return range(last - RECENT_MINUTES, last)


def enqueues_counted_until(samples: Sequence[tuple[float, int]]) -> datetime | None:
    """Return up to when what came in is counted; *samples* by time.

    It was counted when the last sample was taken, up to the one that had settled by then.
    """
    settled = [at for at, _ in samples if at < samples[-1][0] - SETTLING_SECONDS]
    return datetime.fromtimestamp(settled[-1], UTC) if len(settled) > 1 else None


class Bounds(NamedTuple):
    """Seconds that an attempt took more than, and those that it took at most."""

    least: float
    most: float


def quantile(counts: Sequence[int], part: float) -> Bounds | None:
    """Return the class of time of that *part* of attempts; None: there are none.

    So many of them took its end at most. Nobody knows where in it they are, so nothing more exact
    would be true of all.
    """
    wanted = part * sum(counts)
    if not wanted:
        return None
    place = next(place for place, below in enumerate(accumulate(counts)) if below >= wanted)
    least = upper_bound(place - 1) if place else 0.0
    # The last class has no end, and what is told must be a finite number.
    return Bounds(least, min(upper_bound(place), 2 * least) if place else upper_bound(0))
