"""The jobs of a row on the row's own page: a mixin for the project's ModelAdmins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from django import forms
from django.contrib import admin
from django.contrib.admin.utils import flatten
from django.db import models
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from django_pgjobs.admin.addresses import search_address
from django_pgjobs.admin.job_page.actions import JOB_ACTIONS
from django_pgjobs.declaring.subjects import subject_of
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import Job
from django_pgjobs.permissions import Verb, may, narrow
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import JobStatus

# Jobs of a row that its page shows.
MAX_JOBS = 20
# Seconds that reading them may take.
JOBS_SECONDS = 1.0
# How many of the newest are counted by status, and how many seconds that may take.
MAX_COUNTED = 1_000
COUNT_SECONDS = 0.3
# The statuses of which it is told, those first that people look for.
TOLD = (JobStatus.FAILED, JobStatus.RUNNING, JobStatus.READY)
# What is shown of a job; the values of its task stay where they are.
COLUMNS = (
    "status", "task_path", "queue_name", "enqueued_at", "due_at", "started_at", "finished_at",
    "attempts", "cancel_requested_at", "hold",
)  # fmt: skip

FIELD = "jobs_of_row"
# What can be done from there without asking anything.
OFFERED = ("requeue", "run_now", "cancel")

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = object


class JobOfRow(NamedTuple):
    """A job of a row: its address, and (label, address) of what may be done to it."""

    job: Job
    url: str
    actions: list[tuple[str, str]]


class StatusCount(NamedTuple):
    """How many of the newest jobs of a row have a status, and the address of the list of these."""

    status: JobStatus
    number: int
    url: str


class StatusCounts(NamedTuple):
    """How many of the newest jobs of a row have each status; *is_cut*: there are older ones."""

    numbers: Counter[str]
    is_cut: bool


class JobsOfRowMixin(Base):
    """Show on the page of a row the newest jobs that were enqueued with `using(subject=row)`.

    Put it before the ModelAdmin: `class OrderAdmin(JobsOfRowMixin, admin.ModelAdmin)`. It adds a
    read-only field, `jobs_of_row`, in a section of its own at the end; name the field in
    `fields` or `fieldsets` to have it elsewhere. People without the permission to view jobs do
    not see it.
    """

    jobs_of_row_title: ClassVar[Any] = _("Background jobs")

    @property
    def media(self) -> forms.Media:
        return super().media + forms.Media(
            css={"all": ["pgjobs/admin.css"]}, js=["pgjobs/row_jobs.js"]
        )

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> models.Model | None:
        row = super().get_object(request, object_id, from_field)
        if row is not None:
            # A field is drawn without its request, which knows who looks.
            row._pgjobs_viewer = request.user
        return row

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        given = [name for name in super().get_readonly_fields(request, obj) if name != FIELD]
        return [*given, FIELD] if self._shows_jobs(request, obj) else given

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        given = super().get_fieldsets(request, obj)
        is_shown = self._shows_jobs(request, obj)
        if is_shown and self._is_placed():
            return given
        fieldsets = [
            (title, {**options, "fields": without(options["fields"], FIELD)})
            for title, options in given
        ]
        if is_shown:
            fieldsets.append((self.jobs_of_row_title, {"fields": (FIELD,)}))
        return fieldsets

    @admin.display(description=_("Newest jobs"))
    def jobs_of_row(self, row: Any) -> SafeString:
        """Draw the newest jobs about *row*."""
        user = getattr(row, "_pgjobs_viewer", None)
        jobs: list[Job] | None = []
        counts = None
        if user is not None:
            found = narrow(user, Verb.VIEW, Job.objects.for_subject(row))
            jobs = read_within_budget(found)
            counts = count_statuses(found, jobs or [])
        site = self.admin_site
        is_linked = site.is_registered(Job)
        entries = [JobOfRow(job, "", []) for job in jobs or []]
        if is_linked:
            entries = list(_entries(site, user, jobs or []))
        listed, subject = _url(site, "changelist") if is_linked else "", subject_of(row)
        context = {
            "jobs": entries,
            "has_actions": any(entry.actions for entry in entries),
            "is_too_slow": jobs is None,
            "has_more": len(entries) == MAX_JOBS,
            "all_url": search_address(listed, "subject", subject) if is_linked else "",
            "counts": list(_status_counts(counts, listed, subject)) if counts else [],
            "max_counted": MAX_COUNTED if counts and counts.is_cut else None,
        }
        return render_to_string("admin/pgjobs/jobs_of_row.html", context)

    def _shows_jobs(self, request: HttpRequest, obj: Any) -> bool:
        if obj is None or not may(request.user, Verb.VIEW):
            return False
        try:
            return bool(subject_of(obj))
        except ValueError:  # not saved, or a key that no job can have
            return False

    def _is_placed(self) -> bool:
        """Did the project say itself where the field goes?"""
        named: list[Any] = [*(self.fields or ())]
        for _title, options in self.fieldsets or ():
            named += options["fields"]
        return FIELD in flatten(named)


def without(names: Sequence[Any], name: str) -> list[Any]:
    """Return the fields of a fieldset, some of them in lines of their own, but for one."""
    lines = [
        [each for each in line if each != name] if isinstance(line, tuple | list) else line
        for line in names
        if line != name
    ]
    return [line for line in lines if line]


def read_within_budget(jobs: models.QuerySet[Job]) -> list[Job] | None:
    """Return the newest of *jobs*, None if that takes too long."""
    try:
        with time_budget(job_database(), JOBS_SECONDS, walks=True):
            return list(jobs.only(*COLUMNS).order_by("-pk")[:MAX_JOBS])
    except TooSlow:
        return None


def count_statuses(found: models.QuerySet[Job], newest: Sequence[Job]) -> StatusCounts | None:
    """Count by status the newest of the jobs that are *found*, None if that takes too long.

    *newest* are those that are shown, of which a row often has no others.
    """
    if len(newest) < MAX_JOBS:
        return StatusCounts(Counter(job.status for job in newest), is_cut=False)
    statuses = found.order_by("-pk").values_list("status", flat=True)
    try:
        with time_budget(job_database(), COUNT_SECONDS, walks=True):
            read = list(statuses[: MAX_COUNTED + 1])
    except TooSlow:
        return None
    return StatusCounts(Counter(read[:MAX_COUNTED]), is_cut=len(read) > MAX_COUNTED)


def _status_counts(counts: StatusCounts, listed: str, subject: str) -> Iterator[StatusCount]:
    """Yield the numbers that are told; *listed* is the address of the list, "" without one."""
    for status in TOLD:
        number = counts.numbers[status]
        is_linked = bool(listed and number)
        url = search_address(listed, "subject", subject, status=status) if is_linked else ""
        yield StatusCount(status, number, url)


def _entries(site: admin.AdminSite, user: Any, jobs: list[Job]) -> Iterator[JobOfRow]:
    """Yield the jobs with their addresses, and what *user* may do to each of them."""
    allowed: set[int] = set()
    if jobs and may(user, Verb.OPERATE):
        same = Job.objects.filter(pk__in=[job.pk for job in jobs])
        allowed.update(narrow(user, Verb.OPERATE, same).values_list("pk", flat=True))
    for job in jobs:
        actions = [
            (str(JOB_ACTIONS[name].label), _url(site, "do", job.pk, name))
            for name in OFFERED
            if job.pk in allowed and JOB_ACTIONS[name].suits(job)
        ]
        yield JobOfRow(job, _url(site, "change", job.pk), actions)


def _url(site: admin.AdminSite, name: str, *args: Any) -> str:
    return reverse(f"admin:pgjobs_job_{name}", args=args, current_app=site.name)
