"""Charts as numbers and texts for templates: the server draws them as SVG, without styles.

Coordinates are text: a template would write the number 2.5 as 2,5 in some languages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.status import JobStatus

# The statuses of a bar from the bottom to the top.
STACK = (JobStatus.SUCCESSFUL, JobStatus.CANCELLED, JobStatus.FAILED)
HEIGHT = 100.0
# Of the width of a bar's place, the rest is the gap.
BAR_WIDTH = 8
PLACE_WIDTH = 10
# A part that is there is seen, however small.
LEAST_HEIGHT = 0.8
TICKS = 5
SPARK_HEIGHT = 20.0
LEAST_SPARK_HEIGHT = 1.5
DAY_SECONDS = 86_400


class Range(NamedTuple):
    """A time that a chart covers: so many buckets of so many seconds, the last is that of now.

    None is shorter than an hour: what finished in the last hour is counted per queue as well.
    """

    key: str
    label: Any
    bucket_seconds: int
    buckets: int


RANGES = {
    chosen.key: chosen
    for chosen in (
        Range("1h", gettext_lazy("1 hour"), 60, 60),
        Range("6h", gettext_lazy("6 hours"), 300, 72),
        Range("24h", gettext_lazy("24 hours"), 900, 96),
        Range("7d", gettext_lazy("7 days"), 7_200, 84),
    )
}


class Rectangle(NamedTuple):
    """A rectangle of a bar."""

    status: str
    y: str
    height: str


class Bar(NamedTuple):
    """One bucket: where it is drawn, what it says, and its numbers for the table."""

    x: str
    parts: list[Rectangle]
    title: str
    time: str
    counts: list[int]
    jobs: int


class Chart(NamedTuple):
    """Finished jobs over time; *top* is the number at the upper edge."""

    bars: list[Bar]
    width: int
    top: int
    ticks: list[str]
    label: str
    legend: list[tuple[str, Any, int]]
    jobs: int


class Spark(NamedTuple):
    """A small line of bars without an axis."""

    path: str
    width: int
    largest: int


def build_chart(chosen: Range, last_bucket: int, counts: Mapping[tuple[str, int], int]) -> Chart:
    """Return the chart of *counts*, which are jobs by status and number of the bucket."""
    numbers = range(last_bucket - chosen.buckets + 1, last_bucket + 1)
    stacks = [[counts.get((status, number), 0) for status in STACK] for number in numbers]
    top = nice_top(max(map(sum, stacks), default=0))
    totals = [sum(column) for column in zip(*stacks, strict=True)]
    with_date = chosen.bucket_seconds * chosen.buckets > DAY_SECONDS
    bars = [
        _bar(place, stack, top, _bucket_time(number, chosen.bucket_seconds, with_date))
        for place, (number, stack) in enumerate(zip(numbers, stacks, strict=True))
    ]
    every = (chosen.buckets - 1) / (TICKS - 1)
    label = _("Jobs finished in the last %(range)s: %(counts)s.") % {
        "range": chosen.label,
        "counts": _in_words(totals),
    }
    return Chart(
        bars=bars,
        width=chosen.buckets * PLACE_WIDTH,
        top=top,
        ticks=[
            _tick(numbers[round(every * tick)] * chosen.bucket_seconds, with_date)
            for tick in range(TICKS)
        ],
        label=label,
        legend=[
            (status.value, status.label, total) for status, total in zip(STACK, totals, strict=True)
        ],
        jobs=sum(totals),
    )


def _bar(place: int, stack: Sequence[int], top: int, time: str) -> Bar:
    parts = []
    y = HEIGHT
    for status, jobs in zip(STACK, stack, strict=True):
        if jobs:
            height = max(HEIGHT * jobs / top, LEAST_HEIGHT)
            y -= height
            parts.append(Rectangle(status.value, coordinate(max(y, 0.0)), coordinate(height)))
    title = f"{time}: {_in_words(stack)}"
    return Bar(str(place * PLACE_WIDTH), parts, title, time, list(stack), sum(stack))


def _in_words(stack: Sequence[int]) -> str:
    return ", ".join(
        f"{formats.number_format(jobs)} {status.label}"
        for status, jobs in zip(STACK, stack, strict=True)
    )


def _bucket_time(number: int, seconds: int, with_date: bool) -> str:
    begin = _moment_text(number * seconds, with_date)
    end = _moment_text((number + 1) * seconds, False)
    return f"{begin} – {end}"


def _tick(epoch: int, is_date: bool) -> str:
    moment = timezone.localtime(datetime.fromtimestamp(epoch, UTC))
    return formats.date_format(moment, "MONTH_DAY_FORMAT" if is_date else "TIME_FORMAT")


def _moment_text(epoch: int, with_date: bool) -> str:
    time = _tick(epoch, False)
    return f"{_tick(epoch, True)} {time}" if with_date else time


def nice_top(largest: int) -> int:
    """Return the number for the upper edge: 1, 2 or 5 with zeros, at least *largest*."""
    if largest <= 1:
        return 1
    power = int(10 ** int(math.log10(largest)))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= largest)


def coordinate(value: float) -> str:
    """Return a number as SVG wants it in every language."""
    return f"{value:.1f}".removesuffix(".0")


def build_spark(counts: Iterable[int]) -> Spark:
    """Return a line of bars for *counts*, the oldest first."""
    jobs = list(counts)
    largest = max(jobs, default=0)
    steps = []
    for place, number in enumerate(jobs):
        if number:
            height = coordinate(max(SPARK_HEIGHT * number / largest, LEAST_SPARK_HEIGHT))
            steps.append(f"M{place * 4} {coordinate(SPARK_HEIGHT)}v-{height}h3v{height}z")
    return Spark("".join(steps), len(jobs) * 4, largest)
