"""What the chart of the Overview stacks: what finished, by outcome, queue or task."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from django.utils.translation import gettext as _

from django_pgjobs.admin.numbers import finished, jobs_query, start_of
from django_pgjobs.admin.overview.chart import STACK, Range, Series, Split, largest
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.numbers import Number, list_statistics
from django_pgjobs.queries.statistics import OTHERS


def read_series(cursor: Cursor, chosen: Range, split: Split) -> list[Number]:
    """Ask the statistics."""
    return list_statistics(
        cursor,
        seconds=chosen.bucket_seconds * (chosen.buckets - 1),
        bucket_seconds=chosen.bucket_seconds,
        by_queue=split.key == "queue",
        by_task=split.key == "task",
    )


def series_of(numbers: list[Number], chosen: Range, split: Split) -> list[Series]:
    """Return the parts of the bars, the first is at the bottom."""
    since = start_of(numbers[-1].bucket - chosen.buckets + 1, chosen.bucket_seconds)
    if split.key == "outcome":
        return [
            Series(
                status.value,
                status.label,
                _sum(numbers, attrgetter(status.value)),
                jobs_query(status.value, since=since),
            )
            for status in STACK
        ]
    by_name: dict[str, list[Number]] = {}
    for number in numbers:
        name = number.queue_name if split.key == "queue" else number.task_path
        if name is not None and finished(number):
            by_name.setdefault(name, []).append(number)
    rest = by_name.pop(OTHERS[0], [])
    named = [
        Series("", name, _sum(found, finished), jobs_query("all", {split.key: name}, since=since))
        for name, found in by_name.items()
    ]
    return largest(named, _sum(rest, finished), _("others"))


def _sum(numbers: Iterable[Number], count: Callable[[Number], int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for number in numbers:
        jobs = count(number)
        if jobs:
            counts[number.bucket] = counts.get(number.bucket, 0) + jobs
    return counts
