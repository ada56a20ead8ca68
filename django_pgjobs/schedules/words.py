"""What a schedule is at, when it is due and what the clock does then, in words."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_pgjobs.models.schedules import Schedule
from django_pgjobs.values.moments import exact_duration

# An active schedule whose next run is longer ago than this is late: nobody took it. So is one that
# waits longer to be planned.
LATE_AFTER = timedelta(minutes=2)
# What the clock does at an occurrence.
MARKS = {
    "": "",
    "shifted": _("the clock is put forward over its time"),
    "first": _("the clock shows it twice: the first time"),
    "again": _("the clock shows it twice: the second time"),
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
    """Return what a schedule is at, in a word."""
    if row.retired_at is not None:
        return "retired"
    if row.paused_at is not None:
        return "paused"
    if row.next_at is not None:
        due = row.next_at if is_planned(row) else row.plan_from
        if due is not None and due < timezone.now() - LATE_AFTER:
            return "late"
        return "active" if not row.error else "failing"
    return "broken" if row.error else "ended"


def is_planned(row: Schedule) -> bool:
    """Has the row a time for its next run? One that a scheduler is to plan has an infinite one."""
    return row.next_at is not None and row.next_at.year not in (1, 9999)


def when_of(row: Schedule) -> str:
    """Return the rule in a few words."""
    if row.cron is not None:
        return f"{row.cron} {row.timezone}"
    return f"every {exact_duration(row.every)}" if row.every else "?"
