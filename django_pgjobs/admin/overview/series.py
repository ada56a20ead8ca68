"""What the chart of the Overview stacks: what finished, by outcome, queue or task."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _

from django_pgjobs.admin.numbers import jobs_query
from django_pgjobs.admin.overview.chart import MAX_NAMES, STACK, Range, Series, Split
from django_pgjobs.control.numbers import start_of
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.numbers import Finished, Number, list_largest, sum_statistics


def read_series(cursor: Cursor, chosen: Range, split: Split) -> Finished:
    """Ask the statistics."""
    seconds = chosen.bucket_seconds * (chosen.buckets - 1)
    if split.key == "outcome":
        sums = sum_statistics(cursor, seconds=seconds, bucket_seconds=chosen.bucket_seconds)
        return by_outcome(sums.by_time)
    return list_largest(
        cursor,
        seconds=seconds,
        bucket_seconds=chosen.bucket_seconds,
        by_task=split.key == "task",
        max_names=MAX_NAMES,
    )


def by_outcome(numbers: Sequence[Number]) -> Finished:
    """Return how many jobs ended with each status."""
    counts: dict[str | None, dict[int, int]] = {}
    for status in map(str, STACK):
        found = counts[status] = {}
        for number in numbers:
            found[number.bucket] = found.get(number.bucket, 0) + getattr(number, status)
    return Finished(numbers[-1].bucket, numbers[-1].upto, counts)


def series_of(finished: Finished, chosen: Range, split: Split) -> list[Series]:
    """Return the parts of the bars, the first is at the bottom: the name with the most jobs."""
    since = start_of(finished.bucket - chosen.buckets + 1, chosen.bucket_seconds)
    counts = finished.counts
    if split.key == "outcome":
        return [
            Series(each.value, each.label, counts[each], jobs_query(each.value, since=since))
            for each in STACK
        ]
    names = sorted(filter(None, counts), key=lambda name: (-sum(counts[name].values()), name))
    series = [
        Series(str(place), name, counts[name], jobs_query("all", {split.key: name}, since=since))
        for place, name in enumerate(names, start=1)
    ]
    return [*series, Series("others", _("others"), counts[None], "")] if None in counts else series
