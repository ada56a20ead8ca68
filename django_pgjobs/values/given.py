"""Instants, lengths of time and flags as callers give them."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.utils import timezone

from django_pgjobs.exceptions import seconds_or_none
from django_pgjobs.values.bounds import is_number
from django_pgjobs.values.moments import aware, given_in_words
from django_pgjobs.values.payload import BOUNDS_OF_TIMES, EARLIEST, LATEST, in_utc, quoted

# A thousand years: a longer one is a slip.
LONGEST_SPAN = timedelta(days=366_000)


def instant_or_delay(
    moment: datetime | timedelta | None, *, name: str = "run_after"
) -> tuple[datetime | None, float | None]:
    """Return *moment*, the argument *name*, as an instant or as seconds from now.

    Raise TypeError or ValueError if it is neither, or out of all bounds.
    """
    if moment is None:
        return None, None
    if not isinstance(moment, datetime | timedelta):
        said = f"expected {name} to be a datetime or a timedelta, got {quoted(moment)}."
        raise TypeError(said + remedy_for_number(moment))
    if isinstance(moment, timedelta):
        if moment > LONGEST_SPAN:
            raise ValueError(
                f"expected {name} within 1000 years from now, got {given_in_words(moment)}."
            )
        return None, seconds_or_none(moment, name=name)
    instant = moment
    if timezone.is_naive(moment):
        if settings.USE_TZ:
            raise ValueError(f"expected {name} with a time zone, got {given_in_words(moment)}.")
        instant = timezone.make_aware(moment)
    if not EARLIEST <= instant <= LATEST:
        first, last = BOUNDS_OF_TIMES
        raise ValueError(f"expected {name} from {first} to {last}, got {given_in_words(moment)}.")
    return in_utc(instant), None


def given_instant(expected: str, given: object) -> datetime:
    """Return an instant with its time zone, which may be left out where USE_TZ is False.

    Raise TypeError or ValueError, which begins with *expected*, if it is none.
    """
    if not isinstance(given, datetime):
        raise TypeError(f"{expected}, a datetime with a time zone, got {quoted(given)}.")
    if given.tzinfo is None and settings.USE_TZ:
        raise ValueError(f"{expected} with a time zone, got {quoted(given)}.")
    return aware(given)


def remedy_for_number(given: object) -> str:
    """Return how to write a number of seconds as a length of time, "" for what is none."""
    if not (is_number(given) and abs(given) <= LONGEST_SPAN.total_seconds()):
        return ""
    return f" Write timedelta(seconds={given})."


def flag(value: bool, *, name: str) -> bool:
    """Return *value*, the argument *name*; raise TypeError if it is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"expected {name} to be True or False, got {quoted(value)}.")
    return value
