"""From a rule to the instants at which it is due.

An offset from UTC lasts for a while, and during it the readings of a clock follow each other like
instants. So a cron expression is followed from one change of the offset to the next: at a change
forward, readings are left out; at one back, some come again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from django_pgjobs.occurrences.cron import Cron
from django_pgjobs.occurrences.rule import Rule, find_zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
# No offset from UTC is as long, and no two of its changes are as near as a stretch.
SAFE = timedelta(days=2)
STRETCH, STEP = timedelta(days=1), timedelta(hours=6)
FIRST_LOOK_BACK = timedelta(minutes=1)


class Planned(NamedTuple):
    """An occurrence: its instant, in UTC, and what the clock does then.

    *mark* is "shifted" (the clock leaves the time out, it is due after the gap), "first" or "again"
    (the clock shows it twice), or empty.
    """

    at: datetime
    mark: str = ""


def occurrences(rule: Rule, after: datetime) -> Iterator[Planned]:
    """Yield what is due later than *after*, an aware datetime, in order.

    It may never end. Raise nothing: where time ends, so do the occurrences.
    """
    after = after.astimezone(UTC)
    if rule.starts is not None:
        after = max(after, rule.starts - timedelta(microseconds=1))
    try:
        for planned in _all_after(rule, after):
            if rule.ends is not None and planned.at >= rule.ends:
                return
            yield planned
    except OverflowError:
        return


def next_occurrence(rule: Rule, after: datetime) -> Planned | None:
    """Return the first that is due later than *after*, None if there is none."""
    return next(occurrences(rule, after), None)


def occurrences_until(rule: Rule, after: datetime, until: datetime) -> Iterator[Planned]:
    """Yield what is due later than *after*, up to and including *until*."""
    return takewhile(lambda planned: planned.at <= until, occurrences(rule, after))


def latest_occurrence(rule: Rule, after: datetime, until: datetime) -> Planned | None:
    """Return the last that is due later than *after*, up to and including *until*.

    However many there are, it takes about as many steps as come in twice the time since.
    """
    look_back = FIRST_LOOK_BACK
    while True:
        begin = max(after, until - look_back)
        last = deque(occurrences_until(rule, begin, until), maxlen=1)
        if last or begin == after:
            return last[0] if last else None
        look_back *= 2


def _all_after(rule: Rule, after: datetime) -> Iterator[Planned]:
    """Yield occurrences, without those of excluded dates."""
    if rule.parsed_cron is None:
        yield from _by_interval(rule, rule.every or timedelta(), after)
        return
    while True:
        for reading, planned in _by_cron(rule, rule.parsed_cron, after):
            if reading.date() in rule.excluded:
                after = max(planned.at, _day_after(rule, reading.date()) - SECOND)
                break
            yield planned
        else:
            return


def _by_interval(rule: Rule, every: timedelta, after: datetime) -> Iterator[Planned]:
    anchor = rule.starts or EPOCH
    # Whole numbers, exact; nothing is due before the anchor.
    number = max(0, (after - anchor) // every + 1)
    while True:
        at = anchor + number * every
        day = at.astimezone(rule.zone).date()
        if day in rule.excluded:
            number = max(number + 1, -((anchor - _day_after(rule, day)) // every))
            continue
        yield Planned(at)
        number += 1


def _day_after(rule: Rule, day: date) -> datetime:
    """Return when the next day begins."""
    midnight = datetime.combine(day + timedelta(days=1), time(), rule.zone)
    return midnight.astimezone(UTC)


def _by_cron(rule: Rule, cron: Cron, after: datetime) -> Iterator[tuple[datetime, Planned]]:
    """Yield readings of the clock, and when it shows them."""
    begin = after.replace(microsecond=0)
    while True:
        offset = _offset(rule, begin)
        end, is_change = _end_of_stretch(rule, begin)
        shown, stop = _reading(begin, offset), _reading(end, offset)
        reading = None
        for reading in cron.readings(shown):
            if reading >= stop:
                break
            at = reading.replace(tzinfo=UTC) - offset
            mark = _mark(rule, at)
            if at > after and (mark != "again" or rule.runs_twice):
                yield reading, Planned(at, mark)
        else:
            return
        if is_change and rule.runs_after_gaps:
            yield from _skipped_at(rule, cron, end, stop)
        begin = end
        # Nothing matches between these two, whatever clocks do meanwhile: what has matched a little
        # before may be shown again.
        if cron.next_reading(shown - SAFE) == reading:
            begin = max(end, reading.replace(tzinfo=UTC) - SAFE)


def _skipped_at(
    rule: Rule, cron: Cron, change: datetime, reading: datetime
) -> Iterator[tuple[datetime, Planned]]:
    """Yield the end of a gap, if a reading in it matches and the one at its end does not."""
    resumed = _reading(change, _offset(rule, change))
    matching = cron.next_reading(reading)
    while matching is not None and matching < resumed and matching.date() in rule.excluded:
        matching = cron.next_reading(matching + SECOND)
    if matching is not None and matching < resumed and cron.next_reading(resumed) != resumed:
        yield matching, Planned(change, "shifted")


def _offset(rule: Rule, instant: datetime) -> timedelta:
    return instant.astimezone(rule.zone).utcoffset() or timedelta()


def _reading(instant: datetime, offset: timedelta) -> datetime:
    """Return what a clock of this offset shows."""
    return (instant + offset).replace(tzinfo=None)


def _mark(rule: Rule, instant: datetime) -> str:
    local = instant.astimezone(rule.zone)
    if local.fold:
        return "again"
    return "first" if local.replace(fold=1).utcoffset() != local.utcoffset() else ""


def _end_of_stretch(rule: Rule, begin: datetime) -> tuple[datetime, bool]:
    """Return until when the offset stays the same for sure, and whether it changes then."""
    number = (begin - EPOCH) // STRETCH
    change = _change_in(rule.timezone, number)
    if change is not None and change > begin:
        return change, True
    return EPOCH + (number + 1) * STRETCH, False


@lru_cache(maxsize=4096)
def _change_in(timezone: str, number: int) -> datetime | None:
    """Return when the offset changes in this stretch of time, its end included, if it does."""
    zone = find_zone(timezone)
    before, end = EPOCH + number * STRETCH, EPOCH + (number + 1) * STRETCH
    offset = before.astimezone(zone).utcoffset()
    later = before
    while later.astimezone(zone).utcoffset() == offset:
        if later == end:
            return None
        before, later = later, later + STEP
    # Offsets change at whole seconds.
    while later - before > SECOND:
        middle = before + SECOND * ((later - before) // (2 * SECOND))
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            later = middle
    return later
