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
# So many queues or tasks have a color of their own, the rest are one.
MAX_NAMES = 8
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

    The statistics of that time are of periods that are not longer than a bucket.
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
        Range("30d", gettext_lazy("30 days"), DAY_SECONDS, 30),
    )
}


class Split(NamedTuple):
    """What the parts of a bar are."""

    key: str
    label: Any


SPLITS = {
    chosen.key: chosen
    for chosen in (
        Split("outcome", gettext_lazy("By outcome")),
        Split("queue", gettext_lazy("By queue")),
        Split("task", gettext_lazy("By task")),
    )
}


class Series(NamedTuple):
    """Jobs that are one part of each bar, by bucket; *query* lists them, "" for the others.

    *key* names the color.
    """

    key: str
    label: Any
    counts: Mapping[int, int]
    query: str

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())


class Rectangle(NamedTuple):
    """A rectangle of a bar."""

    key: str
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
    legend: list[Series]
    jobs: int

    @property
    def paths(self) -> dict[str, str]:
        """The color and the path of each series: one is shorter than a rectangle for each bar."""
        found: dict[str, list[str]] = {}
        for bar in self.bars:
            for part in bar.parts:
                steps = f"M{bar.x} {part.y}h{BAR_WIDTH}v{part.height}h-{BAR_WIDTH}z"
                found.setdefault(part.key, []).append(steps)
        return {key: "".join(steps) for key, steps in found.items()}


class Spark(NamedTuple):
    """A small line of bars without an axis."""

    path: str
    width: int
    largest: int


def largest(series: Iterable[Series], rest: Mapping[int, int], label: Any) -> list[Series]:
    """Return the series with the most jobs; the others and *rest* are one, with that label."""
    ordered = sorted(series, key=lambda each: (-each.total, str(each.label)))
    found = [
        each._replace(key=str(place)) for place, each in enumerate(ordered[:MAX_NAMES], start=1)
    ]
    counts = dict(rest)
    for each in ordered[MAX_NAMES:]:
        for bucket, jobs in each.counts.items():
            counts[bucket] = counts.get(bucket, 0) + jobs
    return [*found, Series("others", label, counts, "")] if counts else found


def build_chart(chosen: Range, last_bucket: int, series: Sequence[Series]) -> Chart:
    """Return the chart of *series*, the first is at the bottom."""
    numbers = range(last_bucket - chosen.buckets + 1, last_bucket + 1)
    stacks = [[each.counts.get(number, 0) for each in series] for number in numbers]
    top = nice_top(max(map(sum, stacks), default=0))
    with_date = chosen.bucket_seconds * chosen.buckets > DAY_SECONDS
    bars = [
        _bar(place, series, stack, top, _bucket_time(number, chosen.bucket_seconds, with_date))
        for place, (number, stack) in enumerate(zip(numbers, stacks, strict=True))
    ]
    every = (chosen.buckets - 1) / (TICKS - 1)
    shown = [each._replace(counts=_within(each.counts, numbers)) for each in series]
    label = _("Jobs finished in the last %(range)s: %(counts)s.") % {
        "range": chosen.label,
        "counts": _in_words(shown, [each.total for each in shown]) or "0",
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
        legend=shown,
        jobs=sum(map(sum, stacks)),
    )


def _within(counts: Mapping[int, int], numbers: range) -> dict[int, int]:
    return {number: jobs for number, jobs in counts.items() if number in numbers}


def _bar(place: int, series: Sequence[Series], stack: Sequence[int], top: int, time: str) -> Bar:
    parts = []
    y = HEIGHT
    for each, jobs in zip(series, stack, strict=True):
        if jobs:
            height = max(HEIGHT * jobs / top, LEAST_HEIGHT)
            y -= height
            parts.append(Rectangle(each.key, coordinate(max(y, 0.0)), coordinate(height)))
    title = f"{time}: {_in_words(series, stack) or 0}"
    return Bar(str(place * PLACE_WIDTH), parts, title, time, list(stack), sum(stack))


def _in_words(series: Sequence[Series], stack: Sequence[int]) -> str:
    return ", ".join(
        f"{formats.number_format(jobs)} {each.label}"
        for each, jobs in zip(series, stack, strict=True)
        if jobs or each.key in STACK
    )


def _bucket_time(number: int, seconds: int, with_date: bool) -> str:
    begin = _moment_text(number * seconds, with_date)
    end = _moment_text((number + 1) * seconds, seconds >= DAY_SECONDS)
    return f"{begin} – {end}"


def _tick(epoch: int, is_date: bool) -> str:
    moment = timezone.localtime(datetime.fromtimestamp(epoch, UTC))
    return formats.date_format(moment, "MONTH_DAY_FORMAT" if is_date else "TIME_FORMAT")


def _moment_text(epoch: int, with_date: bool) -> str:
    time = _tick(epoch, False)
    return f"{_tick(epoch, True)} {time}" if with_date else time


def nice_top(most: int) -> int:
    """Return the number for the upper edge: 1, 2 or 5 with zeros, at least *most*."""
    if most <= 1:
        return 1
    power = int(10 ** int(math.log10(most)))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= most)


def coordinate(value: float) -> str:
    """Return a number as SVG wants it in every language."""
    return f"{value:.1f}".removesuffix(".0")


def build_spark(counts: Iterable[int]) -> Spark:
    """Return a line of bars for *counts*, the oldest first."""
    jobs = list(counts)
    largest = max(jobs, default=0)
    steps = []
    for place, number in enumerate(jobs):
        if number > 0:
            height = coordinate(max(SPARK_HEIGHT * number / largest, LEAST_SPARK_HEIGHT))
            steps.append(f"M{place * 4} {coordinate(SPARK_HEIGHT)}v-{height}h3v{height}z")
    return Spark("".join(steps), len(jobs) * 4, largest)
