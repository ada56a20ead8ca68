"""A warning, where it leads, and how many of a kind are spelled out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgjobs.drawing import counted

# Warnings of one kind that are spelled out.
MAX_NAMED = 5
# The subject of a warning about those that are not.
OTHERS = "(others)"
# Kinds whose texts say for how long by now, or how many dead rows there are.
PASSING = frozenset({"stuck", "busy", "long_wait", "transaction", "dead_rows"})
# Where warnings lead.
JOBS = "pgjobs_job_changelist"
QUEUES = "pgjobs_queuesettings_changelist"
SCHEDULES = "pgjobs_schedule_changelist"
WORKERS = "pgjobs_worker_changelist"
LIMITS = "pgjobs_ratelimit_changelist"
BATCHES = "pgjobs_batch_changelist"

# What is said of the others of a kind, and where it leads; of all other kinds it is queues.
OTHER_WORDS = {
    "missing_rate": (gettext_lazy("There are more rate limits like that."), LIMITS),
    "failing": (gettext_lazy("There are more tasks like that."), "pgjobs_job_failures"),
    "schedule": (gettext_lazy("There are more schedules like that."), SCHEDULES),
    "batch": (gettext_lazy("There are more batches like that."), BATCHES),
}


class Notice(NamedTuple):
    """A sentence, and the page that shows what it counts: its name among the site's urls.

    *kind* and *subject* say what it is about, whatever its numbers are by now; *text* is "" for one
    that is counted only. *page* is "" where none helps; *key* is that of the row the page is about,
    None for a page about many; *query* is the rest of the address.
    """

    kind: str
    text: str
    page: str = ""
    key: int | None = None
    query: str = ""
    subject: str = ""


def steady(notice: Notice) -> Notice:
    """Return a warning without a text that changes while all else stays as it is."""
    is_passing = notice.kind in PASSING and notice.subject != OTHERS
    return notice._replace(text="") if is_passing else notice


def draw_link(notice: Notice, site_name: str) -> SafeString:
    """Return the link to what a warning counts; nothing where no page of the site helps."""
    if not notice.page:
        return SafeString("")
    args = [] if notice.key is None else [notice.key]
    try:
        address = reverse(f"admin:{notice.page}", args=args, current_app=site_name)
    except NoReverseMatch:
        return SafeString("")
    if notice.query:
        address += f"?{notice.query}"
    return format_html(
        ' <a href="{}">{}<span class="visually-hidden">: {}</span></a>',
        address,
        _("Look"),
        notice.text,
    )


def shorten(notices: Iterable[Notice]) -> list[Notice]:
    """Return the first warnings of each kind, and behind them one about the others of it.

    Those that are muted are not among *notices*: they take nobody's place.
    """
    notices = list(notices)
    count = Counter(notice.kind for notice in notices)
    shown: list[Notice] = []
    named: Counter[str] = Counter()
    for notice in notices:
        named[notice.kind] += 1
        if named[notice.kind] <= MAX_NAMED:
            shown.append(notice)
        elif named[notice.kind] == count[notice.kind]:
            shown.append(_others(notice.kind, count[notice.kind] - MAX_NAMED))
    return shown


def _others(kind: str, number: int) -> Notice:
    if kind == "stuck":
        text = ngettext("%s more job looks stuck.", "%s more jobs look stuck.", number)
        return Notice(kind, text % counted(number), "pgjobs_job_stuck", subject=OTHERS)
    if kind in OTHER_WORDS:
        words, page = OTHER_WORDS[kind]
        return Notice(kind, str(words), page, subject=OTHERS)
    text = ngettext(
        "The same holds for %(queues)s other queue.",
        "The same holds for %(queues)s other queues.",
        number,
    )
    return Notice(kind, text % {"queues": counted(number)}, QUEUES, subject=OTHERS)
