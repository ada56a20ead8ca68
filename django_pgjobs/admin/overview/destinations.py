"""Where warnings lead: the page that shows what one counts."""

from __future__ import annotations

from typing import NamedTuple

from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_pgjobs.admin.numbers import jobs_query
from django_pgjobs.control.pause_words import SCHEDULE
from django_pgjobs.warnings.notices import OTHERS, Notice

# Kinds whose texts say for how long by now, or how many dead rows there are.
PASSING = frozenset({"stuck", "busy", "long_wait", "transaction", "dead_rows", "paused"})
JOBS = "pgjobs_job_changelist"
QUEUES = "pgjobs_queuesettings_changelist"
# Kinds that one page shows, whatever they are about.
PAGES = {
    "missing_rate": "pgjobs_ratelimit_changelist",
    "schedule": "pgjobs_schedule_changelist",
    "lost_workers": "pgjobs_worker_changelist",
    "paused": QUEUES,
    "transaction": "pgjobs_job_system",
    "dead_rows": "pgjobs_job_system",
    "versions": "pgjobs_worker_changelist",
    "broken": "",
    "settings": "",
}
# Kinds whose subject is the id of a row that has a page.
ROWS = {"stuck": "pgjobs_job_change", "batch": "pgjobs_batch_change"}
# Where warnings about the others of a kind lead; of all other kinds it is queues.
OF_OTHERS = PAGES | {
    "failing": "pgjobs_job_failures",
    "unknown_task": JOBS,
    "stuck": "pgjobs_job_stuck",
    "batch": "pgjobs_batch_changelist",
}


class WarningPage(NamedTuple):
    """A page by its name among the site's urls, "" where none helps.

    *key* is that of the row the page is about, None for a page about many; *query* is the rest of
    the address.
    """

    page: str
    key: int | None = None
    query: str = ""


def page_of(notice: Notice) -> WarningPage:
    """Return where a warning leads: to the ready jobs of its queue, unless it is about another."""
    if notice.subject == OTHERS:
        return WarningPage(OF_OTHERS.get(notice.kind, QUEUES))
    if notice.kind == "paused" and notice.subject.startswith(f"{SCHEDULE}:"):
        return WarningPage(PAGES["schedule"])
    if notice.kind in PAGES:
        return WarningPage(PAGES[notice.kind])
    if notice.kind in ROWS:
        return WarningPage(ROWS[notice.kind], int(notice.subject))
    if notice.kind == "failing":
        query = jobs_query("failed", {"task": notice.subject}, since=notice.since)
    elif notice.kind == "held":
        query = jobs_query("blocked")
    elif notice.kind == "unknown_task":
        query = jobs_query("all", {"task": notice.subject})
    else:
        query = jobs_query("ready", {"queue": notice.subject} if notice.subject else None)
    return WarningPage(JOBS, query=query)


def steady(notice: Notice) -> Notice:
    """Return a warning without a text that changes while all else stays as it is."""
    is_passing = notice.kind in PASSING and notice.subject != OTHERS
    return notice._replace(text="") if is_passing else notice


def draw_link(notice: Notice, site_name: str) -> SafeString:
    """Return the link to what a warning counts; nothing where no page of the site helps."""
    page, key, query = page_of(notice)
    if not page:
        return SafeString("")
    args = [] if key is None else [key]
    try:
        address = reverse(f"admin:{page}", args=args, current_app=site_name)
    except NoReverseMatch:
        return SafeString("")
    if query:
        address += f"?{query}"
    return format_html(
        ' <a href="{}">{}<span class="visually-hidden">: {}</span></a>',
        address,
        _("Look"),
        notice.text,
    )
