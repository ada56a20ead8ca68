"""Cron expressions: five fields, or six with the seconds first.

The parser is cronsim, of the extra `cron`. It is asked for the readings of a clock on the wall,
without a time zone; `planning` says when a clock shows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from datetime import datetime, timedelta
from functools import lru_cache

try:
    from cronsim import CronSim, CronSimError
except ImportError:  # pragma: no cover
    CronSim = None  # type: ignore[assignment,misc]

MAX_LENGTH = 256
SECOND = timedelta(seconds=1)
ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
# From when on an expression has to match once in fifty years; before a 29th of February.
SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a reading of the clock


class Lacking(ValueError):
    """This process lacks what a rule needs; another one may have it."""


class Cron:
    """A cron expression that matches something."""

    def __init__(self, expression: str) -> None:
        """Raise ValueError, saying what is wrong, for an expression that nothing matches."""
        self.expression = _checked(expression)
        parts = self.expression.split()
        minute, hour = parts[-5], parts[-4]
        # As in Vixie's cron: one with a star here goes by the clock on the wall, whatever it
        # shows; the others are meant for one moment of a day.
        self.is_wild = minute.startswith("*") or hour.startswith("*")
        self._parsed = CronSim(self.expression, SOME_DAY)

    def readings(self, earliest: datetime) -> Iterator[datetime]:
        """Yield the readings that match from *earliest* on, which is naive, in order.

        There is none later than fifty years after the one before.
        """
        # It iterates over itself, and parsing takes longer than finding the next.
        following = copy(self._parsed)
        following.dt = earliest.replace(microsecond=0) - SECOND
        return following

    def next_reading(self, earliest: datetime) -> datetime | None:
        """Return the first that matches, *earliest* included, None if there is none."""
        return next(self.readings(earliest), None)

    def in_words(self) -> str:
        """Return what the expression means, in English."""
        return str(self._parsed.explain())


@lru_cache(maxsize=4096)
def cron_of(expression: str) -> Cron:
    """Return the parsed expression; raise ValueError as `Cron` does."""
    return Cron(expression)


def _checked(expression: str) -> str:
    """Return the expression without aliases and surplus space."""
    if not isinstance(expression, str) or not 1 <= len(expression) <= MAX_LENGTH:
        raise ValueError(
            f"expected cron to be an expression of up to {MAX_LENGTH} characters, "
            f'such as "0 3 * * *", got {str(expression)[:80]!r}.'
        )
    if CronSim is None:
        raise Lacking(
            "cron expressions need the package cronsim: pip install cronsim, or give "
            "every=timedelta(...)."
        )
    given = " ".join(expression.split())
    given = ALIASES.get(given.lower(), given).upper()
    try:
        found = next(CronSim(given, SOME_DAY), None)
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        raise ValueError(
            "expected cron to be five fields (minute, hour, day of month, month, day of week), or "
            f"six with the seconds first, got {expression!r}: {str(error).lower()}. Known are "
            "names, ranges, steps, L, LW, 5L and MON#1."
        ) from None
    except OverflowError:
        found = None
    if found is None:
        raise ValueError(f"expected cron to match some day, got {expression!r}, which never does.")
    return given
