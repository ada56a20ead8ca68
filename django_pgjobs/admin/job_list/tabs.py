"""The tabs of the list of jobs: what each shows, in what order, and how many that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import F, Q, QuerySet, Value
from django.utils import formats
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgjobs.conf import get_conf
from django_pgjobs.models import Job
from django_pgjobs.queries import job_list as queries
from django_pgjobs.queries.job_list import TAB_COLUMNS
from django_pgjobs.status import FINISHED, WAITING, JobStatus, Waiting

# What a count goes up to: beyond it nobody compares numbers.
MAX_COUNTED = 10_000
# Live jobs, and such of them as wait for a time, that are read for the counts of the tabs that
# have no index: a few times MAX_COUNTED, and every page of the list pays for it.
MAX_SAMPLED = 20_000
# Rows that one question may read.
MAX_READ = 100_000


@dataclass(frozen=True)
class Tab:
    """One of the lists.

    *index_column* leads the partial index of its jobs, if there is one; *sample* says among
    which jobs they are counted, if not among all.
    """

    key: str
    label: Any
    lookups: Mapping[str, Any]
    empty: Any
    index_column: str = ""
    sample: str = ""

    @property
    def is_finished(self) -> bool:
        """Does it show finished jobs only? They come by the time of their end, newest first."""
        return self.lookups.get("status") in FINISHED


TABS = (
    Tab("all", gettext_lazy("All"), {}, gettext_lazy("No jobs.")),
    Tab(
        "scheduled",
        gettext_lazy("Scheduled"),
        WAITING[Waiting.SCHEDULED],
        gettext_lazy("No scheduled jobs: none waits for a time that was asked for."),
        index_column="due_at",
        sample="due",
    ),
    Tab(
        "ready",
        gettext_lazy("Ready"),
        WAITING[Waiting.READY],
        gettext_lazy("No ready jobs: all that was due has been started."),
        sample="live",
    ),
    Tab(
        "running",
        gettext_lazy("Running"),
        {"status": "running"},
        gettext_lazy("No running jobs."),
        index_column="worker_id",
    ),
    Tab(
        "retrying",
        gettext_lazy("Retrying"),
        WAITING[Waiting.RETRYING],
        gettext_lazy("No retrying jobs: none failed and waits for its next attempt."),
        index_column="due_at",
        sample="due",
    ),
    Tab(
        "blocked",
        gettext_lazy("Blocked"),
        WAITING[Waiting.BLOCKED],
        gettext_lazy("No blocked jobs: none waits for another job."),
        sample="live",
    ),
    Tab("failed", gettext_lazy("Failed"), {"status": "failed"}, gettext_lazy("No failed jobs.")),
    Tab(
        "cancelled",
        gettext_lazy("Cancelled"),
        {"status": "cancelled"},
        gettext_lazy("No cancelled jobs."),
    ),
    Tab(
        "successful",
        gettext_lazy("Successful"),
        {"status": "successful"},
        gettext_lazy("No successful jobs."),
    ),
)


class Count(NamedTuple):
    """How many jobs a tab has; if not *is_exact*, there are at least so many."""

    number: int
    is_exact: bool = True


def find_tab(key: str | None) -> Tab:
    """Return the tab of that key, "All" if there is none."""
    return next((tab for tab in TABS if tab.key == key), TABS[0])


def count_tabs(jobs: QuerySet[Job]) -> dict[str, Count]:
    """Return the count of each tab, among *jobs*, by one statement.

    Jobs that have ended are counted as far as shown. Of those that have not a sample is read:
    if there are more, the counts of the tabs without an index say what was found in it.
    """
    columns = jobs.order_by().values_list(*TAB_COLUMNS)
    columns.query.has_plain_times = True  # type: ignore[attr-defined]
    try:
        sql, params = columns.query.get_compiler(using=jobs.db).as_sql()
    except EmptyResultSet:
        return {}
    with connections[jobs.db].cursor() as cursor:
        found = queries.count_tabs(cursor, sql, params, cap=MAX_COUNTED + 1, max_read=MAX_SAMPLED)
    counts = {}
    for tab in TABS:
        number = getattr(found, tab.key)
        is_whole = tab.sample == "" or getattr(found, tab.sample) < MAX_SAMPLED
        counts[tab.key] = Count(min(number, MAX_COUNTED), is_whole and number <= MAX_COUNTED)
    return counts


def draw_count(count: Count | None) -> SafeString:
    """Return a count as a tab shows it; what is read out says that there are more."""
    if count is None:
        return SafeString("")
    number = formats.number_format(count.number, use_l10n=True, force_grouping=True)
    if count.is_exact:
        return format_html('<span class="pgjobs-quiet">{}</span>', number)
    text = _("more than %s") if count.number >= MAX_COUNTED else _("at least %s")
    return format_html(
        '<span class="pgjobs-quiet"><span aria-hidden="true">{}+</span>'
        '<span class="visually-hidden">{}</span></span>',
        number,
        text % number,
    )


def kept_text(tab: Tab) -> str:
    """Return how long the jobs of a tab stay, nothing if that is no question."""
    if not tab.is_finished:
        return ""
    conf = get_conf()
    is_failed = tab.lookups["status"] == JobStatus.FAILED
    seconds = conf.FAILED_RETENTION_SECONDS if is_failed else conf.RETENTION_SECONDS
    if seconds is None:
        return _("They are kept for ever.")
    days = round(seconds / 86_400)
    if days < 1:
        return _("They are kept for less than a day.")
    return ngettext("They are kept for %d day.", "They are kept for %d days.", days) % days


def exceeds_index(tab: Tab) -> bool:
    """Are there more jobs in the partial index of *tab* than one question may read?"""
    status = tab.lookups["status"]
    rows = Job.objects.filter(Q(status=status) & Q(**{f"{tab.index_column}__isnull": False}))
    beyond = rows.order_by(F(tab.index_column)).values_list(Value(1))[MAX_READ : MAX_READ + 1]
    return bool(beyond)
