"""How statuses, times and numbers are drawn on every page of the admin."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from django.utils import formats, timezone
from django.utils.functional import lazy
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_pgjobs.status import BatchState, JobStatus
from django_pgjobs.values.moments import aware, duration, exact_moment, now_aware
from django_pgjobs.values.payload import in_utc

ICONS = {
    "ready": "●",
    "running": "▶",
    "successful": "✓",
    "failed": "✕",
    "cancelled": "‖",
}


def counted(number: float) -> str:
    """Return a number as one counts it: with separators, a small fraction with one digit."""
    if 0 <= number < 1_000 and isinstance(number, int):  # most are, and need no separator
        return str(number)
    digits = 1 if 0 < number < 10 and number != int(number) else 0
    return formats.number_format(round(number, digits), digits, force_grouping=True)


def counting() -> Callable[[int], str]:
    """Return what does as `counted` for whole numbers: for hundreds, the language is asked once."""
    if formats.get_format("NUMBER_GROUPING") != 3:
        return counted
    separator = formats.get_format("THOUSAND_SEPARATOR")
    return lambda number: f"{number:,}".replace(",", separator)


def jobs_link(number: int, jobs_url: str, query: str, is_cut: bool = False) -> str:
    """Draw a number of jobs, as a link to the list of them; *is_cut*: there are more."""
    text = counted(number)
    if is_cut:
        text = _("more than %s") % text
    elif not number:
        return text
    return format_html('<a href="{}?{}">{}</a>', jobs_url, query, text)


def percent(share: float | None) -> str:
    """Return a percentage; what is there but rounds to nothing is less than 1."""
    if share is None:
        return "–"
    if 0 < share < 1:
        return "<1 %"
    return f"{formats.number_format(round(share))} %"


# Of a path or a name; not the point of a number, and not before what was cut off.
BETWEEN_WORDS = re.compile(r"(?:(?<!\d)[._]|[._](?!\d))(?=[^\s…])")


def breakable(text: object) -> SafeString:
    """Draw a text whose paths of tasks break behind dots and underscores and in no word."""
    return SafeString(BETWEEN_WORDS.sub(r"\g<0><wbr>", escape(str(text))))


def status_badge(status: str) -> SafeString:
    """Draw a job's status as an icon and its word."""
    label = JobStatus(status).label if status in JobStatus.values else status
    return format_html(
        '<span class="pgjobs-status pgjobs-{}"><span aria-hidden="true">{}</span> {}</span>',
        status if status in ICONS else "unknown",
        ICONS.get(status, "?"),
        label,
    )


STATE_ICONS = {
    "broken": "!",
    "cancelled": "‖",
    "failed": "✕",
    "not run": "–",
    "successful": "✓",
    "cancelling": "‖",
    "waiting": "◷",
    "open": "●",
    "running": "▶",
}


def state_badge(state: str) -> SafeString:
    """Draw the state of a batch as an icon and its word."""
    return format_html(
        '<span class="pgjobs-status pgjobs-{}"><span aria-hidden="true">{}</span> {}</span>',
        state.replace(" ", "-"),
        STATE_ICONS[state],
        BatchState(state).label,
    )


def moment(instant: datetime | None) -> str | SafeString:
    """Draw an instant as the time since or until it; the exact time is its title."""
    if instant is None:
        return "–"
    seconds = (now_aware() - aware(instant)).total_seconds()
    text = _("in %s") % duration(-seconds) if seconds < 0 else _("%s ago") % duration(seconds)
    return time_element(instant, text)


def age(instant: datetime | None, now: datetime) -> str:
    """Draw how long ago an instant was, by the database's clock; the exact time is its title."""
    if instant is None:
        return "–"
    return time_element(instant, duration((aware(now) - aware(instant)).total_seconds()))


def time_element(instant: datetime, text: str) -> SafeString:
    """Draw *text* about an instant; the exact time and its zone are the title."""
    instant = aware(instant)
    title = f"{exact_moment(instant)} {timezone.localtime(instant).tzname()}"
    exact = in_utc(instant).isoformat(timespec="seconds").replace("+00:00", "Z")
    return format_html('<time datetime="{}" title="{}">{}</time>', exact, title, text)


def exact_time(instant: datetime) -> SafeString:
    """Draw an instant to the second; its zone is in the title."""
    return time_element(instant, exact_moment(aware(instant)))


def _current_zone() -> str:
    return _("Time zone: %(zone)s.") % {"zone": timezone.get_current_timezone_name()}


# What each form says of a time: the server reads it by this zone, not by that of the browser.
CURRENT_ZONE = lazy(_current_zone, str)()


def capped(number: int, cap: int) -> str:
    """Return a number that was counted up to *cap* + 1."""
    if number > cap:
        return _("more than %s") % formats.number_format(cap, force_grouping=True)
    return formats.number_format(number, force_grouping=True)
