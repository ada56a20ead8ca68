"""Instants and lengths of time as people read them, in a sentence, on a page, in the log.

Sentences and pages are in the active language and the current time zone; the log is in neither,
and without spaces in a value.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal

from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_pgjobs.values.payload import in_utc, quoted

DAY, HOUR, MINUTE = 86_400, 3_600, 60


def aware(instant: datetime) -> datetime:
    """Return an instant with its time zone: with USE_TZ = False Django reads naive ones.

    Those are then in UTC, in which the difference of two is the time between them.
    """
    if timezone.is_aware(instant):
        return instant
    return in_utc(timezone.make_aware(instant, timezone.get_default_timezone()))


def now_aware() -> datetime:
    """Return the time with its time zone; with USE_TZ = False Django's own has none."""
    return aware(timezone.now())


def instant_text(instant: datetime | None) -> str | None:
    """Return an instant as programs are told it: ISO 8601, in UTC."""
    if instant is None:
        return None
    return in_utc(aware(instant)).isoformat().replace("+00:00", "Z")


def moment_in_words(instant: datetime | None, now: datetime) -> str:
    """Return an instant in the current time zone, and how far from now it is."""
    if instant is None:
        return "?"
    away = (instant - now).total_seconds()
    distance = _("in %(time)s") if away > 0 else _("%(time)s ago")
    exact = f"{exact_moment(instant)} {timezone.localtime(instant).tzname()}"
    return f"{exact} ({distance % {'time': duration_in_words(abs(away))}})"


def exact_moment(instant: datetime) -> str:
    """Return an instant to the second, in the current time zone, which is not named."""
    local = timezone.localtime(instant)
    return f"{formats.date_format(local, 'DATE_FORMAT')} {local:%H:%M:%S}"


def duration_in_words(seconds: float) -> str:
    """Return a length of time in the largest unit of which there are two, for a sentence.

    Below a second it is in ms, as on pages (`duration`).
    """
    if 0 < seconds * 1000 < 999.5:
        return f"{seconds * 1000:.0f} ms"
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{formats.number_format(Decimal(f'{seconds:.3g}'))} s"


def exact_duration(seconds: float) -> str:
    """Return all of a length of time that somebody gave: 10 s, 1 d 2 h, 1 min 0.5 s."""
    if seconds < 0:
        return f"-{exact_duration(-seconds)}"
    whole, parts = seconds, []
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        number, whole = divmod(whole, size)
        parts += [f"{number:.0f} {unit}"] if number else []
    return " ".join([*parts, f"{whole:g} s"] if whole or not parts else parts)


def given_in_words(given: object) -> str:
    """Return what somebody gave, for a message: a length of time, an instant, or another value."""
    if isinstance(given, timedelta):
        return exact_duration(given.total_seconds())
    return str(given) if isinstance(given, datetime) else quoted(given)


def duration(seconds: float | None) -> str:
    """Return a length of time in at most two units, for a page: 42 ms, 3.8 s, 4 min 10 s, 7 d.

    A dash for None, and to or from a time that is infinite, which JSON brings as a text.
    """
    if seconds is None or not math.isfinite(float(seconds)):
        return "–"
    if seconds < 0:
        seconds = 0.0
    if seconds * 1000 < 999.5:
        return pgettext("length of time", "%s ms") % formats.number_format(round(seconds * 1000))
    if round(seconds, 1) < MINUTE:
        return pgettext("length of time", "%s s") % formats.number_format(round(seconds, 1))
    if seconds >= DAY:
        alone = pgettext("length of time", "%s d")
        both = pgettext("length of time", "%(large)s d %(small)s h")
        return _two_units(seconds, DAY, HOUR, alone, both)
    if seconds >= HOUR:
        alone = pgettext("length of time", "%s h")
        both = pgettext("length of time", "%(large)s h %(small)s min")
        return _two_units(seconds, HOUR, MINUTE, alone, both)
    alone = pgettext("length of time", "%s min")
    both = pgettext("length of time", "%(large)s min %(small)s s")
    return _two_units(seconds, MINUTE, 1, alone, both)


def _two_units(seconds: float, size: int, smaller: int, alone: str, both: str) -> str:
    # A length that rounds to one of the unit may be a part of a second shorter.
    large, rest = divmod(int(max(seconds, size)), size)
    number, small = formats.number_format(large), rest // smaller
    return both % {"large": number, "small": small} if small else alone % number


def logged_duration(seconds: float) -> str:
    """Return a length of time for a line of the log: 42ms, 3.75s, 12min, 2h10min."""
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 90:
        return f"{seconds:.2f}s"
    minutes = int(seconds // MINUTE)
    return f"{minutes}min" if minutes < 90 else f"{minutes // 60}h{minutes % 60:02d}min"
