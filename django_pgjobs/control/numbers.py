"""Numbers that pages and commands show: of each queue, and by the statistics of the last hour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.numbers import (
    Number,
    Outcomes,
    Size,
    Times,
    enqueues_counted_until,
    list_largest,
    quantile,
    recent_minutes,
    sum_statistics,
)
from django_pgjobs.queries.queue_pages import MAX_QUEUES, QueueRow
from django_pgjobs.queries.statistics import OTHERS

MINUTE, HOUR = 60, 3_600
# What "the last hour" is: 60 minutes of the clock, the last of which is not over.
HOUR_SECONDS = HOUR - MINUTE
# Numbers that are older, in seconds, say how old they are.
OLD_SECONDS = 5.0
NO_JOBS = Outcomes(0, 0, 0)


class Hour(NamedTuple):
    """What ended and came in within the last hour: by minute, by queue, and how long it took."""

    minutes: list[Number]
    queues: dict[str, Outcomes]
    times: dict[str, Times]

    @property
    def since(self) -> datetime:
        """When the first minute began."""
        return start_of(self.minutes[-1].bucket - HOUR // MINUTE + 1, MINUTE)

    @property
    def queue_names(self) -> set[str]:
        """The queues of which something ended or came in."""
        return (self.queues.keys() | self.times.keys()) - {"", OTHERS[0]}

    @property
    def upto(self) -> datetime:
        """Up to when all that ended is counted."""
        return self.minutes[-1].upto


def read_hour(cursor: Cursor) -> Hour:
    """Ask the statistics."""
    return Hour(
        *sum_statistics(cursor, seconds=HOUR_SECONDS, bucket_seconds=MINUTE, times_seconds=HOUR)
    )


class Span(NamedTuple):
    """How many seconds half of some attempts took at most, and 95 of 100."""

    half: float
    most: float


def span_of(counts: Sequence[int]) -> Span | None:
    """Return how long attempts took, None if there were none; *counts* are those of the classes."""
    half, most = quantile(counts, 0.5), quantile(counts, 0.95)
    return Span(half.most, most.most) if half is not None and most is not None else None


def add_up(times: Iterable[Times]) -> Times:
    """Return the times of all together."""
    waits: list[int] = []
    runs: list[int] = []
    for each in times:
        waits = [a + b for a, b in zip(waits, each.waits, strict=True)] if waits else each.waits
        runs = [a + b for a, b in zip(runs, each.runs, strict=True)] if runs else each.runs
    return Times(waits, runs)


def finished(number: Number) -> int:
    """Return how many jobs ended."""
    return number.successful + number.failed + number.cancelled


def start_of(bucket: int, seconds: int) -> datetime:
    """Return when a bucket of time begins."""
    return datetime.fromtimestamp(bucket * seconds, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLine:
    """What is told of a queue, of the hour that began at *since*."""

    row: QueueRow
    finished: int
    failed: int
    failed_percent: float | None
    waited: Span | None
    ran: Span | None
    since: datetime

    @property
    def name(self) -> str:
        """Its name."""
        return self.row.name

    @property
    def size(self) -> Size | None:
        """What has not finished in it, None if that is not known."""
        return self.row.size

    @property
    def is_full(self) -> bool:
        """Do as many jobs of it run as may?"""
        most = self.row.max_running
        return most is not None and self.size is not None and self.size.running >= most


def queue_lines(rows: Iterable[QueueRow], hour: Hour) -> list[QueueLine]:
    """Return the lines of queues."""
    return [_line(row, hour.queues.get(row.name, NO_JOBS), hour) for row in rows]


def _line(row: QueueRow, ended: Outcomes, hour: Hour) -> QueueLine:
    ran = ended.successful + ended.failed
    times = hour.times.get(row.name)
    return QueueLine(
        row=row,
        finished=sum(ended),
        failed=ended.failed,
        failed_percent=100 * ended.failed / ran if ran else None,
        waited=span_of(times.waits) if times else None,
        ran=span_of(times.runs) if times else None,
        since=hour.since,
    )


class JobRate(NamedTuple):
    """How many jobs there were per minute, None if that is not known.

    *since* and *until* are when the minutes that were counted, all of them over, began and ended.
    """

    per_minute: float | None
    since: datetime | None = None
    until: datetime | None = None


def rate_of(counts: dict[int, int], until: datetime | None, hour: Hour) -> JobRate:
    """Return the rate of the last minutes before *until*; *counts* are by minute.

    It is not known if they began before the hour.
    """
    if until is None:
        return JobRate(None)
    minutes = recent_minutes(until)
    since = start_of(minutes.start, MINUTE)
    if since < hour.since:
        return JobRate(None)
    jobs = sum(counts.get(minute, 0) for minute in minutes)
    return JobRate(jobs / len(minutes), since, start_of(minutes.stop, MINUTE))


def finish_rate(hour: Hour) -> JobRate:
    """Return how many jobs finish per minute."""
    counts = {each.bucket: finished(each) for each in hour.minutes}
    return rate_of(counts, hour.upto, hour)


def read_finish_rates(cursor: Cursor, hour: Hour, names: Iterable[str]) -> dict[str, JobRate]:
    """Return how many jobs of each queue finish per minute, without queues of which it is unknown.

    The statistics have those with the most jobs; what ends in all others is one number.
    """
    ended = list_largest(
        cursor,
        seconds=HOUR_SECONDS,
        bucket_seconds=MINUTE,
        by_task=False,
        max_names=MAX_QUEUES,
    )
    known = (name for name in names if name in ended.counts or None not in ended.counts)
    return {name: rate_of(ended.counts.get(name, {}), ended.upto, hour) for name in known}


def enqueue_rate(hour: Hour, samples: Sequence[tuple[float, int]]) -> JobRate:
    """Return how many jobs come in per minute."""
    until = enqueues_counted_until(samples)
    counts = {each.bucket: each.enqueued for each in hour.minutes}
    return rate_of(counts, until, hour)
