"""The page Failures: failed jobs by task, exception and message, and what to do with a group."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any
from urllib.parse import urlencode

from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from django_pgjobs.admin.addresses import quoted
from django_pgjobs.admin.bulk.asking import bulk_address
from django_pgjobs.admin.job_page.traceback_html import last_project_frame
from django_pgjobs.admin.overview.live import KEPT_SECONDS, kept
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.svg import Spark, build_spark
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.conf import get_conf
from django_pgjobs.control.failures import MAX_JOBS, class_name, list_groups, message_of
from django_pgjobs.models import BulkChange
from django_pgjobs.permissions import Verb, is_narrowed, may, require
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.failures import FailureRow
from django_pgjobs.status import JobStatus

# Failed jobs that are looked at on request: they have a time budget of their own and are kept for
# longer.
MAX_JOBS_ASKED = 100_000
ASKED_SECONDS = 15.0
ASKED_KEPT_SECONDS = 60
# The history of a group: 28 periods of six hours.
PERIODS = 28


@dataclass(frozen=True)
class ShownGroup:
    """A group of failed jobs as a page shows it; the Overview shows less than the page Failures."""

    row: FailureRow

    @property
    def task_name(self) -> str:
        """The name of the task without its module."""
        return self.row.task_path.rpartition(".")[2] or self.row.task_path

    @property
    def class_name(self) -> str:
        """The name of the exception's class without its module."""
        return class_name(self.row.error_class)

    @property
    def message(self) -> str:
        """The message of one of the jobs, else what all messages have."""
        return message_of(self.row)

    @cached_property
    def frame(self) -> str:
        """Where in the project it failed."""
        return last_project_frame(self.row.traceback)

    @cached_property
    def spark(self) -> Spark:
        """How many failed, by period."""
        return build_spark(history(self.row))

    @property
    def query(self) -> str:
        """The query of the list of these jobs."""
        return list_query(self.row)

    @property
    def key(self) -> str:
        """The name by which the page knows it when it draws it again."""
        return group_key(self.row)


def group_key(row: FailureRow) -> str:
    """Return a short name by which the page knows a group when it draws it again."""
    text = "\n".join((row.task_path, row.error_class, row.error_message))
    return blake2b(text.encode(), digest_size=8).hexdigest()


def history(row: FailureRow) -> list[int]:
    """Return how many failed in each period, the oldest first."""
    found = dict(zip(row.periods, row.period_jobs, strict=True))
    return [found.get(number, 0) for number in reversed(range(PERIODS))]


def list_query(row: FailureRow) -> str:
    """Return the query of the list of jobs that shows a group, as far as its search can say it.

    Of the message it is the longest text that all of the group have.
    """
    text = max(row.error_message.split("*"), key=len).strip()
    terms = [("task", row.task_path), ("error", row.error_class), ("error", text)]
    words = [f"{name}:{quoted(value)}" for name, value in terms if value]
    return urlencode({"tab": JobStatus.FAILED.value, "q": " ".join(words)})


def lookups_of(row: FailureRow) -> dict[str, Any]:
    """Return the conditions of bulk changes for exactly the jobs of a group."""
    return {
        "status__in": [JobStatus.FAILED.value],
        "task_path": row.task_path,
        "error_class": row.error_class,
        "error_message": row.error_message,
    }


def draw_failures(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page."""
    require(request, Verb.VIEW)
    context: dict[str, Any] = {"title": _("Failures"), "pgjobs_page": "failures"}
    if is_narrowed(request.user):
        return model_admin.render_page(request, "failures.html", context | {"is_narrowed": True})
    newest_first = request.GET.get("sort") == "newest"
    asked = request.GET.get("jobs") == "all"
    max_jobs = MAX_JOBS_ASKED if asked else MAX_JOBS
    rows = kept(
        f"failures:{max_jobs}:{newest_first}:{_newest_change()}",
        lambda: read_failures(max_jobs, newest_first),
        seconds=ASKED_KEPT_SECONDS if asked else KEPT_SECONDS,
    )
    groups = [ShownGroup(row) for row in rows]
    address = request.get_full_path()
    may_operate = may(request.user, Verb.OPERATE)
    context |= {
        "groups": [
            {
                "group": group,
                "actions": actions(model_admin, group.row, address) if may_operate else [],
            }
            for group in groups
        ],
        "newest_first": newest_first,
        "is_asked": asked,
        "looked_at": rows[0].all_jobs if rows else 0,
        "since": rows[0].all_since if rows else None,
        "is_partial": bool(rows) and rows[0].all_jobs >= max_jobs,
        "more_groups": rows[0].all_groups - len(rows) if rows else 0,
        "max_asked": MAX_JOBS_ASKED,
        "retention": get_conf().FAILED_RETENTION_SECONDS,
    }
    return model_admin.render_page(request, "failures.html", context)


def _newest_change() -> int:
    """Return the id of the newest bulk change: what was kept before shows what it changed."""
    changes = BulkChange.objects.using(job_database()).order_by("-pk")
    return changes.values_list("pk", flat=True).first() or 0


def read_failures(max_jobs: int, newest_first: bool) -> list[FailureRow]:
    """Ask the database for the largest groups, or the newest."""
    alias = job_database()
    budget = time_budget(alias, ASKED_SECONDS) if max_jobs > MAX_JOBS else nullcontext()
    with budget, connections[alias].cursor() as cursor:
        return list_groups(cursor, max_jobs=max_jobs, newest_first=newest_first)


def actions(model_admin: PageAdmin, row: FailureRow, back: str) -> list[tuple[str, str]]:
    """Return the addresses where a bulk change of a group is confirmed, with their labels.

    They lead *back* to the page.
    """
    selection = Selection(lookups_of(row))
    return [
        (_("Requeue all"), bulk_address(model_admin, "requeue", selection, back=back)),
        (_("Discard all"), bulk_address(model_admin, "discard", selection, back=back)),
    ]
