"""Another way to the same times: a clock that is watched from minute to minute.

It shares no code with the package: neither the parser nor the arithmetic of offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def numbers(field: str, least: int, most: int) -> set[int]:
    """Return what a field of stars, numbers, ranges, steps and commas stands for."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin = least if first == "*" else int(first)
        end = int(last) if last else most if first == "*" or step else begin
        found |= set(range(begin, end + 1, int(step or 1)))
    return found


class Expression:
    """A cron expression of five fields without names."""

    def __init__(self, text: str) -> None:
        parts = text.split()
        sets = [numbers(part, *bounds) for part, bounds in zip(parts, FIELDS, strict=True)]
        self.minutes, self.hours, self.days, self.months, weekdays = sets
        self.weekdays = {day % 7 for day in weekdays}
        self.both = parts[2].startswith("*") or parts[4].startswith("*")

    def matches(self, shown: datetime) -> bool:
        """Is the expression true while a clock shows this?"""
        day, weekday = shown.day in self.days, shown.isoweekday() % 7 in self.weekdays
        return (
            shown.minute in self.minutes
            and shown.hour in self.hours
            and shown.month in self.months
            and ((day and weekday) if self.both else (day or weekday))
        )


def watch(
    text: str, zone: str, begin: datetime, end: datetime, *, after_gaps: bool, twice: bool
) -> Iterator[datetime]:
    """Yield the instants later than *begin* and not later than *end*, whole minutes in UTC."""
    expression, clock = Expression(text), ZoneInfo(zone)

    def shown_at(instant: datetime) -> datetime:
        return instant.astimezone(clock).replace(tzinfo=None, fold=0)

    instant = begin.replace(second=0, microsecond=0)
    # What it has shown before, as far back as a clock is ever put.
    shown = shown_at(instant - timedelta(hours=3))
    seen = {shown_at(instant - MINUTE * back) for back in range(181)}
    shown = shown_at(instant)
    while instant < end:
        instant += MINUTE
        before, shown = shown, shown_at(instant)
        is_again = shown in seen
        seen.add(shown)
        missing = []
        while before + MINUTE < shown:
            before += MINUTE
            missing.append(before)
        if expression.matches(shown):
            if twice or not is_again:
                yield instant
        elif after_gaps and any(map(expression.matches, missing)):
            yield instant
