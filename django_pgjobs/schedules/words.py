"""The state of a schedule, when it is due and what the clock does then, in words."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.dates import WEEKDAYS
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.schedules import Schedule
from django_pgjobs.occurrences.cron import Cron
from django_pgjobs.queries.schedules import LATE_SECONDS
from django_pgjobs.values.moments import exact_duration
from django_pgjobs.values.payload import EARLIEST, LATEST

# What the clock does at an occurrence.
MARKS = {
    "": "",
    "shifted": _("the clock is put forward over its time"),
    "first": _("the clock shows it twice: the first time"),
    "again": _("the clock shows it twice: the second time"),
}
CRON_FIELDS = 5
NAMES = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_TIME = r"(?P<minute>\d+) (?P<hour>\d+)"
# The usual cron expressions: minute, hour, day of month, month, weekday.
USUAL = {
    r"\* \* \* \* \*": _("every minute"),
    r"\*/(?P<count>\d+) \* \* \* \*": _("every %(count)s minutes of an hour, from minute 0 on"),
    r"(?P<minute>\d+) \* \* \* \*": _("every hour, at minute %(minute)s"),
    rf"{_TIME} \* \* \*": _("every day at %(time)s"),
    rf"{_TIME} (?P<day>\d+) \* \*": _("at %(time)s on day %(day)s of each month"),
    rf"{_TIME} \* \* (?:1-5|MON-FRI)": _("Monday to Friday at %(time)s"),
    rf"{_TIME} \* \* (?P<weekday>[0-7]|{'|'.join(NAMES)})": _("every %(weekday)s at %(time)s"),
}
# What the policies mean.
POLICIES = {
    "latest": _("make up for the latest"),
    "all": _("make up for all"),
    "skip": _("leave out"),
    "allow": _("enqueue all the same"),
    "queue": _("let them run one after the other"),
    "cancel": _("cancel the earlier"),
    "after": _("due after the gap"),
    "never": _("not due"),
    "once": _("due the first time"),
    "twice": _("due both times"),
}


def state_of(row: Schedule) -> str:
    """Return the state of a schedule: retired, paused, late, active, failing, broken or ended."""
    if row.retired_at is not None:
        return "retired"
    if row.paused_at is not None:
        return "paused"
    if row.next_at is not None:
        due = row.next_at if is_planned(row) else row.plan_from
        if due is not None and due < timezone.now() - timedelta(seconds=LATE_SECONDS):
            return "late"
        return "active" if not row.error else "failing"
    return "broken" if row.error else "ended"


def is_planned(row: Schedule) -> bool:
    """Has the row a time for its next run? One that a scheduler is to plan has an infinite one."""
    return row.next_at is not None and not is_infinite(row.next_at)


def is_infinite(instant: datetime) -> bool:
    """Is it what Python has for an infinite instant, or for one that is beyond its calendar?"""
    return instant.year in (EARLIEST.year, LATEST.year)


def cron_in_words(cron: Cron) -> str:
    """Return what an expression means, in the language that is active; "" if that has no words.

    The parser has words for all of them in English, we for the usual ones.
    """
    if (get_language() or "en").partition("-")[0] == "en":
        return cron.in_words()
    fields = cron.expression.split()
    if len(fields) != CRON_FIELDS:
        return ""
    for shape, text in USUAL.items():
        found = re.fullmatch(shape, " ".join(fields))
        if found is not None:
            values: dict[str, object] = found.groupdict()
            if "hour" in values:
                values["time"] = f"{int(found['hour']):02}:{int(found['minute']):02}"
            if "weekday" in values:
                values["weekday"] = _weekday(found["weekday"])
            return str(text) % values
    return ""


def _weekday(given: str) -> str:
    number = NAMES.index(given) if given in NAMES else int(given) % len(NAMES)
    return str(WEEKDAYS[(number - 1) % len(NAMES)])


def when_of(row: Schedule) -> str:
    """Return the rule in a few words."""
    if row.cron is not None:
        return f"{row.cron} {row.timezone}"
    return f"every {exact_duration(row.every)}" if row.every else "?"
