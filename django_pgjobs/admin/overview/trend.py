"""Whether the jobs that are ready become more or fewer, and when they will be gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django.utils import formats
from django.utils.translation import gettext as _

from django_pgjobs.queries.numbers import Size
from django_pgjobs.values.moments import duration_in_words

MINUTE = 60.0
# How far back is looked, and how far two points are apart at least.
LOOK_BACK_SECONDS = 180.0
LEAST_SECONDS = 20.0
# Fewer ready jobs than this are no backlog.
LEAST_READY = 10
# If the backlog would be gone later than this, the page does not say when.
FORESEEN_SECONDS = 7 * 86_400.0


def trend_per_minute(points: Sequence[tuple[float, int]]) -> float | None:
    """Return by how many a minute the jobs became more since they last turned; None: not known.

    *points* are seconds and jobs, by time. What came at once and is worked off since then is seen
    to become less.
    """
    if len(points) < 2:
        return None
    end, jobs = points[-1]
    is_less = jobs < points[-2][1]
    begin, before = points[-2]
    for moment, ready in reversed(points[:-2]):
        if moment < end - LOOK_BACK_SECONDS or (ready < before if is_less else ready > before):
            break
        begin, before = moment, ready
    return (jobs - before) / (end - begin) * MINUTE


def trend_text(samples: Sequence[tuple[float, int]], size: Size) -> str:
    """Say how the ready jobs become more or fewer; nothing if that is not known, or no question."""
    if size.is_cut or size.ready < LEAST_READY:
        return ""
    rate = trend_per_minute(_with_now(samples, size.measured_at, size.ready))
    if rate is None:
        return ""
    number = formats.number_format(round(abs(rate)), force_grouping=True)
    if round(rate) > 0:
        return _("grows by %s a minute") % number
    if round(rate) == 0:
        return _("stays as it is")
    seconds = size.ready / -rate * MINUTE
    if seconds > FORESEEN_SECONDS:
        return _("shrinks by %s a minute") % number
    return _("gone in about %s") % duration_in_words(round(seconds))


def _with_now(
    samples: Sequence[tuple[float, int]], now: datetime, ready: int
) -> list[tuple[float, int]]:
    """Return the samples and what was counted just now, unless that is one of them."""
    moment = now.timestamp()
    before = [point for point in samples if point[0] <= moment - LEAST_SECONDS]
    recent = [point for point in before if point[0] >= moment - LOOK_BACK_SECONDS]
    return [*recent, (moment, ready)]
