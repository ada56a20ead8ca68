"""Charts as numbers and texts for templates: the server draws them as SVG, without styles.

Coordinates are text: a template would write the number 2.5 as 2,5 in some languages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from django.utils import dateformat, formats, timezone
from django.utils.html import escape
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin.svg import coordinate
from django_pgjobs.drawing import counting
from django_pgjobs.status import JobStatus

# The statuses of a bar from the bottom to the top.
STACK = (JobStatus.SUCCESSFUL, JobStatus.CANCELLED, JobStatus.FAILED)
# How many queues or tasks have a color of their own; the others share one.
MAX_NAMES = 8
# How many of them are named where the pointer rests on a bar, by the ends of their names.
MAX_SAID = 3
MAX_SAID_LENGTH = 40
HEIGHT = 100.0
# Of the width of a bar's place, the rest is the gap.
BAR_WIDTH = 8
PLACE_WIDTH = 10
# A part that is there is seen, however small.
LEAST_HEIGHT = 0.8
TICKS = 5
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
        Range("7d", gettext_lazy("7 days"), 14_400, 42),
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
    """One bucket: where it is drawn, what it says, and its numbers."""

    x: str
    parts: list[Rectangle]
    title: str
    time: str
    counts: list[int]
    jobs: int


class Chart(NamedTuple):
    """Finished jobs over time; *top* is the number at the upper edge.

    It draws itself what there are hundreds of, and escapes each text once: a template would be
    slow, and so would `format_html`.
    """

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

    @property
    def places(self) -> SafeString:
        """Where the pointer rests on a bar, and what that says."""
        return SafeString(
            "\n".join(
                f'<rect x="{bar.x}"><title>{escape(bar.title)}</title></rect>' for bar in self.bars
            )
        )

    @property
    def rows(self) -> SafeString:
        """The numbers as rows of a table, the newest bar first, those without jobs left out."""
        said = counting()
        return SafeString(
            "\n".join(
                f'<tr><th scope="row">{escape(bar.time)}</th>{_cells(map(said, bar.counts))}</tr>'
                for bar in reversed(self.bars)
                if bar.jobs
            )
        )


def _cells(numbers: Iterable[str]) -> str:
    """Return numbers as cells; they are escaped together, for there are many."""
    cells = escape("\t".join(numbers)).replace("\t", "</td><td>")
    return f"<td>{cells}</td>"


def build_chart(chosen: Range, last_bucket: int, series: Sequence[Series]) -> Chart:
    """Return the chart of *series*, the first is at the bottom."""
    numbers = range(last_bucket - chosen.buckets + 1, last_bucket + 1)
    # Labels are translated when they are drawn: once for all bars.
    shown = [
        each._replace(label=str(each.label), counts=_within(each.counts, numbers))
        for each in series
    ]
    stacks = [[each.counts.get(number, 0) for each in shown] for number in numbers]
    top = nice_top(max(map(sum, stacks), default=0))
    times = _bucket_times(numbers, chosen)
    titles = _titles(times, shown, stacks)
    label = _("Jobs finished in the last %(range)s: %(counts)s.") % {
        "range": chosen.label,
        "counts": _in_words(shown, [each.total for each in shown], counting()) or "0",
    }
    every = (chosen.buckets - 1) / (TICKS - 1)
    is_dated = _is_dated(chosen)
    return Chart(
        bars=[
            Bar(str(place * PLACE_WIDTH), _parts(shown, stack, top), title, time, stack, sum(stack))
            for place, (title, time, stack) in enumerate(zip(titles, times, stacks, strict=True))
        ],
        width=chosen.buckets * PLACE_WIDTH,
        top=top,
        ticks=[
            _tick(numbers[round(every * tick)] * chosen.bucket_seconds, is_dated)
            for tick in range(TICKS)
        ],
        label=label,
        legend=shown,
        jobs=sum(map(sum, stacks)),
    )


def _within(counts: Mapping[int, int], numbers: range) -> dict[int, int]:
    return {number: jobs for number, jobs in counts.items() if number in numbers}


def _parts(series: Sequence[Series], stack: Sequence[int], top: int) -> list[Rectangle]:
    parts = []
    y = HEIGHT
    for each, jobs in zip(series, stack, strict=True):
        if jobs:
            height = max(HEIGHT * jobs / top, LEAST_HEIGHT)
            y -= height
            parts.append(Rectangle(each.key, coordinate(max(y, 0.0)), coordinate(height)))
    return parts


def _titles(
    times: Sequence[str], series: Sequence[Series], stacks: Sequence[Sequence[int]]
) -> list[str]:
    """Return what each bar says; what all of them say is translated and shortened once."""
    others, said = _("others"), counting()
    named = [each._replace(label=_end_of(each.label)) for each in series]
    return [
        f"{time}: {_largest_in_words(named, stack, others, said) or 0}"
        for time, stack in zip(times, stacks, strict=True)
    ]


def _in_words(series: Sequence[Series], stack: Sequence[int], said: Callable[[int], str]) -> str:
    return ", ".join(
        f"{said(jobs)} {each.label}"
        for each, jobs in zip(series, stack, strict=True)
        if jobs or each.key in STACK
    )


def _largest_in_words(
    series: Sequence[Series], stack: Sequence[int], others: str, said: Callable[[int], str]
) -> str:
    """Return the numbers of a bar: of many names those with the most jobs."""
    if len(series) <= MAX_SAID:
        return _in_words(series, stack, said)
    by_jobs = sorted(zip(stack, series, strict=True), key=lambda found: -found[0])
    named = [(jobs, each) for jobs, each in by_jobs if each.query][:MAX_SAID]
    rest = sum(stack) - sum(jobs for jobs, _ in named)
    words = [f"{said(jobs)} {each.label}" for jobs, each in named if jobs]
    return ", ".join([*words, f"{said(rest)} {others}"] if rest else words)


def _end_of(name: str) -> str:
    """Return a name without its beginning, if it is long."""
    return name if len(name) <= MAX_SAID_LENGTH else f"…{name[1 - MAX_SAID_LENGTH :]}"


def _is_dated(chosen: Range) -> bool:
    return chosen.bucket_seconds * chosen.buckets > DAY_SECONDS


def _bucket_times(numbers: range, chosen: Range) -> list[str]:
    """Return from when to when each bucket is; what ends one begins the next."""
    # Days have the same times, and times the same day: each is written once.
    style = formats.get_format("TIME_FORMAT")
    clock = cache(lambda moment: dateformat.time_format(moment, style))
    day = cache(lambda date: formats.date_format(date, "MONTH_DAY_FORMAT"))
    zone = timezone.get_current_timezone()
    edges = [
        datetime.fromtimestamp(number * chosen.bucket_seconds, zone)
        for number in range(numbers.start, numbers.stop + 1)
    ]
    times = [clock(edge.time()) for edge in edges]
    dated = times
    if _is_dated(chosen):
        dated = [f"{day(edge.date())} {time}" for edge, time in zip(edges, times, strict=True)]
    ends = dated if chosen.bucket_seconds >= DAY_SECONDS else times
    return [f"{begin} – {end}" for begin, end in zip(dated, ends[1:], strict=False)]


def _tick(epoch: int, is_date: bool) -> str:
    moment = datetime.fromtimestamp(epoch, timezone.get_current_timezone())
    return formats.date_format(moment, "MONTH_DAY_FORMAT" if is_date else "TIME_FORMAT")


def nice_top(most: int) -> int:
    """Return the number for the upper edge: 1, 2 or 5 with zeros, at least *most*."""
    if most <= 1:
        return 1
    power = int(10 ** int(math.log10(most)))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= most)
