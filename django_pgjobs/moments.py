"""Instants and lengths of time in words, in the active language and the current time zone."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.translation import gettext as _

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def moment_in_words(instant: datetime | None, now: datetime) -> str:
    """Return an instant in the current time zone, and how far from now it is."""
    if instant is None:
        return "?"
    local = timezone.localtime(instant) if timezone.is_aware(instant) else instant
    away = (instant - now).total_seconds()
    distance = _("in %(time)s") if away > 0 else _("%(time)s ago")
    return f"{local.isoformat(' ', 'seconds')} ({distance})" % {
        "time": duration_in_words(abs(away))
    }


def duration_in_words(seconds: float) -> str:
    """Return so many seconds in the largest unit of which there are at least two."""
    for size, unit in UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.3g} s"
