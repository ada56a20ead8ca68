"""When a schedule is due, as it is declared: its options, checked."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property

from django_pgjobs.occurrences.cron import Cron, Lacking, cron_of
from django_pgjobs.values.moments import given_in_words

SHORTEST_EVERY, LONGEST_EVERY = timedelta(seconds=1), timedelta(days=3660)
MAX_EXCEPT_DATES = 1_000
# What to do about a time that the clock skips, and one that it shows twice.
SKIPPED_TIMES = ("after", "never")
REPEATED_TIMES = ("once", "twice")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The times of a schedule. Raise ValueError, saying what was expected, if it makes none.

    *cron* are readings of the clock of *timezone*. When that clock is put forward over one,
    *skipped_time* says whether it is due right "after" the gap, once for all readings in it, or
    "never"; when it is put back, *repeated_time* says whether a reading counts "once", the
    first time, or "twice". Without them an expression whose minute or hour begins with a star goes
    by what the clock shows ("never", "twice"), any other one is due once a day ("after", "once").

    *every* is time that has passed: whatever clocks do, it counts from *starts*, or from
    1970-01-01 in UTC.

    Nothing is due before *starts*, from *ends* on, and on *except_dates* of the time zone.
    """

    cron: str | None = None
    every: timedelta | None = None
    timezone: str = "UTC"
    skipped_time: str | None = None
    repeated_time: str | None = None
    starts: datetime | None = None
    ends: datetime | None = None
    except_dates: tuple[date, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.except_dates, Iterable) and not isinstance(self.except_dates, str):
            object.__setattr__(self, "except_dates", tuple(self.except_dates))
        for problem in self._find_problems():
            raise ValueError(problem)
        for name in ("starts", "ends"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, given.astimezone(UTC))

    def _find_problems(self) -> Iterator[str]:
        if (self.cron is None) == (self.every is None):
            yield (
                "expected either cron or every, got "
                f"{'both' if self.cron is not None else 'none of them'}."
            )
        elif self.cron is not None:
            cron_of(self.cron)
        elif not isinstance(self.every, timedelta) or not (
            SHORTEST_EVERY <= self.every <= LONGEST_EVERY
        ):
            kind = "" if isinstance(self.every, timedelta) else "a timedelta "
            yield (
                f"expected every to be {kind}from {given_in_words(SHORTEST_EVERY)} to "
                f"{given_in_words(LONGEST_EVERY)}, got {given_in_words(self.every)}."
            )
        find_zone(self.timezone)
        yield from self._find_choice_problems()
        yield from self._find_window_problems()

    def _find_choice_problems(self) -> Iterator[str]:
        choices = {"skipped_time": SKIPPED_TIMES, "repeated_time": REPEATED_TIMES}
        for name, allowed in choices.items():
            given = getattr(self, name)
            if given is not None and given not in allowed:
                yield f"expected {name} to be one of {', '.join(allowed)}, got {given!r}."
            if given is not None and self.cron is None:
                yield f"expected {name} with cron only: an interval knows no clock."

    def _find_window_problems(self) -> Iterator[str]:
        for name in ("starts", "ends"):
            given = getattr(self, name)
            if given is None:
                continue
            if not isinstance(given, datetime) or given.tzinfo is None:
                yield f"expected {name} to be an aware datetime, got {given_in_words(given)}."
            elif not 1970 <= given.year < 9999:
                yield f"expected {name} from 1970 to 9998, got {given_in_words(given)}."
        if self.starts is not None and self.ends is not None and self.starts >= self.ends:
            yield f"expected ends to be later than starts, {self.starts}, got {self.ends}."
        dates = self.except_dates
        if not isinstance(dates, tuple) or not all(
            isinstance(day, date) and not isinstance(day, datetime) for day in dates
        ):
            yield f"expected except_dates to list dates, got {str(dates)[:200]}."
        elif len(dates) > MAX_EXCEPT_DATES:
            yield f"expected at most {MAX_EXCEPT_DATES} except_dates, got {len(dates)}."

    @cached_property
    def parsed_cron(self) -> Cron | None:
        """The parsed expression, None for an interval."""
        return None if self.cron is None else cron_of(self.cron)

    @cached_property
    def zone(self) -> zoneinfo.ZoneInfo:
        """The time zone."""
        return find_zone(self.timezone)

    @cached_property
    def excluded(self) -> frozenset[date]:
        """The dates without an occurrence."""
        return frozenset(self.except_dates)

    @property
    def runs_after_gaps(self) -> bool:
        """Is a time that the clock leaves out due after the gap?"""
        return self.skipped_time == "after" or (self.skipped_time is None and not self._is_wild)

    @property
    def runs_twice(self) -> bool:
        """Is a time that the clock shows twice due both times?"""
        return self.repeated_time == "twice" or (self.repeated_time is None and self._is_wild)

    @property
    def _is_wild(self) -> bool:
        return self.parsed_cron is not None and self.parsed_cron.is_wild


def find_zone(name: str) -> zoneinfo.ZoneInfo:
    """Return the time zone; raise ValueError if there is none of this name."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (OSError, TypeError, ValueError, AttributeError, zoneinfo.ZoneInfoNotFoundError):
        # Without any zones nobody can tell whether there is this one.
        raise (ValueError if zoneinfo.available_timezones() else Lacking)(
            'expected timezone to be a continent and a city such as "Europe/Berlin" or '
            f'"America/New_York", or "UTC", got {name!r}. Those that this computer does not know '
            "the package tzdata brings."
        ) from None
