"""What several pages say of numbers: how old they are, and where each leads to."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.utils import timezone
from django.utils.translation import gettext as _

from django_pgjobs.admin.addresses import OLDEST, SORT
from django_pgjobs.control.numbers import OLD_SECONDS, QueueLine
from django_pgjobs.status import Waiting
from django_pgjobs.values.moments import aware, duration

# Tabs of what has not finished.
OLDEST_FIRST = frozenset({*map(str, Waiting), "running"})


def jobs_query(
    tab: str,
    names: Mapping[str, str] | None = None,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    column: str = "finished_at",
) -> str:
    """Return the query of the list of jobs that shows what a number counts.

    *column* is a time of theirs from *since* until before *until*, both whole seconds; *names* are
    filters such as {"queue": "mail"}. Of what has not finished the oldest or longest comes first:
    it is what somebody has to look at.
    """
    query = {"tab": tab, **(names or {})}
    if tab in OLDEST_FIRST:
        query[SORT] = OLDEST
    if since is not None:
        query |= _moment(f"{column}__range__gte", since)
    if until is not None:
        query |= _moment(f"{column}__range__lte", until - timedelta(seconds=1))
    return urlencode(query)


def _moment(name: str, instant: datetime) -> dict[str, str]:
    local = timezone.localtime(aware(instant))
    return {f"{name}_0": local.strftime("%Y-%m-%d"), f"{name}_1": local.strftime("%H:%M:%S")}


def as_of(instant: datetime | None, now: datetime) -> str:
    """Return how old a number is, in words; nothing for one that is new.

    *now* is the same for all numbers of a page, else two of one instant might differ by a second.
    """
    seconds = (aware(now) - aware(instant)).total_seconds() if instant else 0.0
    return _("as of %s ago") % duration(round(seconds)) if seconds >= OLD_SECONDS else ""


def queue_query(line: QueueLine, tab: str) -> str:
    """Return that of the list of jobs behind a number; *tab*: also "finished" in its hour."""
    since = line.since if tab in ("finished", "failed") else None
    return jobs_query("all" if tab == "finished" else tab, {"queue": line.name}, since=since)


def queue_queries(line: QueueLine) -> dict[str, str]:
    """Return those of all its numbers."""
    return {tab: queue_query(line, tab) for tab in (*sorted(OLDEST_FIRST), "finished", "failed")}
