"""The history checker of rate limits: how many were granted in one period, at the worst."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def microseconds(instant: datetime) -> int:
    """Return an instant as a whole number, in which differences are exact."""
    return (instant - EPOCH) // MICROSECOND


def largest_window(grants: Iterable[tuple[datetime, int]], period: timedelta) -> int:
    """Return the largest sum of tokens in any half-open window [t, t + period).

    *grants* are (instant, tokens) in any order. A worst window begins at a grant, because
    moving it on to its first grant loses none.
    """
    ordered = sorted((microseconds(instant), tokens) for instant, tokens in grants)
    width = period // MICROSECOND
    worst = inside = first = 0
    for instant, tokens in ordered:
        inside += tokens
        while instant - ordered[first][0] >= width:
            inside -= ordered[first][1]
            first += 1
        worst = max(worst, inside)
    return worst
