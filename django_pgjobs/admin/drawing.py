"""How statuses, times and numbers are drawn on every page of the admin."""

from __future__ import annotations

import math
from datetime import datetime

from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from django_pgjobs.status import JobStatus

ICONS = {
    "ready": "●",
    "running": "▶",
    "successful": "✓",
    "failed": "✕",
    "cancelled": "‖",
}


def status_badge(status: str) -> SafeString:
    """Draw a job's status as an icon and its word."""
    label = JobStatus(status).label if status in JobStatus.values else status
    return format_html(
        '<span class="pgjobs-status pgjobs-{}"><span aria-hidden="true">{}</span> {}</span>',
        status if status in ICONS else "unknown",
        ICONS.get(status, "?"),
        label,
    )


def duration(seconds: float | None) -> str:
    """Return a length of time in at most two units: 42 ms, 3.8 s, 4 min 10 s, 2 d 3 h.

    There is none to or from a time that is infinite, which JSON brings as a text.
    """
    if seconds is None or not math.isfinite(float(seconds)):
        return "–"
    if seconds < 0:
        seconds = 0.0
    if seconds < 1:
        return pgettext("length of time", "%s ms") % formats.number_format(round(seconds * 1000))
    if seconds < 60:
        return pgettext("length of time", "%s s") % formats.number_format(round(seconds, 1))
    whole = int(seconds)
    for size, smaller, texts in (
        (86_400, 3_600, pgettext("length of time", "%(large)s d %(small)s h")),
        (3_600, 60, pgettext("length of time", "%(large)s h %(small)s min")),
        (60, 1, pgettext("length of time", "%(large)s min %(small)s s")),
    ):
        if whole >= size:
            large, rest = divmod(whole, size)
            return texts % {"large": formats.number_format(large), "small": rest // smaller}
    return ""


def moment(instant: datetime | None) -> str | SafeString:
    """Draw an instant as the time since or until it; the exact time is its title."""
    if instant is None:
        return "–"
    seconds = (timezone.now() - instant).total_seconds()
    text = _("in %s") % duration(-seconds) if seconds < 0 else _("%s ago") % duration(seconds)
    exact = formats.date_format(timezone.localtime(instant), "DATETIME_FORMAT")
    return format_html('<time datetime="{}" title="{}">{}</time>', instant.isoformat(), exact, text)


def capped(number: int, cap: int) -> str:
    """Return a number that was counted up to *cap* + 1."""
    if number > cap:
        return _("more than %s") % formats.number_format(cap, force_grouping=True)
    return formats.number_format(number, force_grouping=True)
