"""The columns of the list of jobs, and what they read beside the fields of a row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin.job_list.previews import arguments_line, start_of
from django_pgjobs.control.details import detail_of, find_paused
from django_pgjobs.drawing import breakable, moment, status_badge, time_element
from django_pgjobs.models import Job
from django_pgjobs.models.failure_groups import last_error_expression
from django_pgjobs.status import FINISHED, JobStatus
from django_pgjobs.values.moments import aware, duration

# One huge payload must not enter the list: these are cut off in the database instead.
LARGE_FIELDS = ("args", "kwargs", "metadata", "errors", "result", "progress", "worker_ids")
MAX_TAGS = 5
MAX_TAG = 40
# Characters of a path, an error and a queue's name that are never cut off on a wide screen.
MAX_WHOLE = 40
MAX_WHOLE_ERROR = 24
MAX_WHOLE_NAME = 12
# Characters of a job's last error that are read.
MAX_ERROR_CLASS, MAX_ERROR_MESSAGE = 200, 300
NO_ERROR = ": "


def with_columns(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """Return *jobs* as the columns read them."""
    return jobs.defer(*LARGE_FIELDS).annotate(
        pgjobs_args=start_of("args"),
        pgjobs_kwargs=start_of("kwargs"),
        pgjobs_error=last_error_expression(
            max_class=MAX_ERROR_CLASS, max_message=MAX_ERROR_MESSAGE
        ),
    )


def find_pauses(jobs: Sequence[Any]) -> None:
    """Tell each of the jobs of a page whether it is paused."""
    paused = find_paused(jobs)
    for job in jobs:
        job.pgjobs_is_paused = job.pk in paused


class JobColumns:
    """The columns; a row is a Job that `with_columns` read and `find_pauses` knows.

    What a row has a page has a hundred times, so its markup is as short as can be: style is told
    by the column, and the address of a job begins where that of the list ends.
    """

    @admin.display(description=gettext_lazy("Job"))
    def job_column(self, job: Any) -> SafeString:
        """Task, number, arguments, last error and tags: what a job is."""
        line = arguments_line(job.task_path, job.pgjobs_args, job.pgjobs_kwargs)
        return format_html(
            '<a class="pgjobs-task" href="{}/change/"{}><bdi>{}</bdi></a>'
            "<div><small>#{}</small>{}{}{}</div>",
            job.pk,
            _title(job.task_path, MAX_WHOLE),
            breakable(job.task_path),
            job.pk,
            _told("pgjobs-bad", _error_line(job), job.pgjobs_error),
            _told("pgjobs-args", line),
            _draw_tags(job.tags),
        )

    @admin.display(description=gettext_lazy("Status"))
    def status_column(self, job: Any) -> SafeString:
        """The status, and what it waits for or was asked to do."""
        detail = detail_of(job, is_paused=job.pgjobs_is_paused)
        text = detail.label if detail else ""
        return format_html("{}{}", status_badge(job.status), _line(text))

    @admin.display(description=gettext_lazy("Queue"))
    def queue_column(self, job: Job) -> SafeString:
        """The queue, and the priority if it is not the usual one."""
        name = job.queue_name
        priority = _("priority %d") % job.priority if job.priority else ""
        return format_html("<bdi{}>{}</bdi>{}", _title(name, MAX_WHOLE_NAME), name, _line(priority))

    @admin.display(description=gettext_lazy("Attempts"))
    def attempts_column(self, job: Job) -> str:
        """How many were begun, and how many there may be."""
        most = job.allowed_attempts
        return f"{job.attempts}/{most}" if most else str(job.attempts)

    @admin.display(description=gettext_lazy("When"))
    def when_column(self, job: Job) -> SafeString:
        """When it ended, began, will begin or came, and how long that took."""
        now = timezone.now()
        if job.status in FINISHED:
            return format_html("{}{}", moment(job.finished_at), _line(_took(job)))
        if job.status == JobStatus.RUNNING:
            begin = job.last_attempted_at
            text: Any = _("running for %s") % duration(_seconds(begin, now))
            text = time_element(begin, text) if begin else text
            return format_html("{}{}", text, _line(_took(job)))
        if job.due_at is not None:
            overdue = _("overdue") if job.due_at <= now else ""
            return format_html("{}{}", moment(job.due_at), _line(overdue))
        since = job.waiting_since
        return time_element(since, _("waiting for %s") % duration(_seconds(since, now)))


def _line(text: Any) -> SafeString:
    """Return a further line of a cell, in our own words; nothing without a text."""
    return format_html("<small>{}</small>", text) if text else SafeString("")


def _told(css_class: str, text: str, title: str = "") -> SafeString:
    """Return what somebody wrote, in whatever script; *title* is all of what may be cut off."""
    if not text:
        return SafeString("")
    whole = _title(title, MAX_WHOLE_ERROR)
    return format_html('<div class="{}"{}><bdi>{}</bdi></div>', css_class, whole, text)


def _title(text: str, most: int) -> SafeString:
    """Return the attribute that shows all of a text which may be cut off, being longer."""
    return format_html(' title="{}"', text) if len(text) > most else SafeString("")


def _error_line(job: Any) -> str:
    """Return the last error of a job that is not over it, in one line."""
    if job.status == JobStatus.SUCCESSFUL or job.pgjobs_error == NO_ERROR:
        return ""
    path, _colon, message = job.pgjobs_error.partition(": ")
    lines = message.strip().splitlines()
    name = path.rpartition(".")[2]
    return f"{name}: {lines[0]}" if lines else name


def _draw_tags(tags: Any) -> SafeString:
    """Return the tags as links to the jobs that have them."""
    if not tags:
        return SafeString("")
    shown = [str(tag)[:MAX_TAG] for tag in tags[:MAX_TAGS]]
    more = [f"+{len(tags) - MAX_TAGS}"] if len(tags) > MAX_TAGS else []
    names = format_html_join(" ", "<span>{}</span>", ((t,) for t in shown + more))
    title = _title(", ".join(shown), MAX_WHOLE_NAME)
    return format_html('<div class="pgjobs-tags"{}>{}</div>', title, names)


def _took(job: Job) -> str:
    """Return how long a job waited until its newest attempt, and how long that one ran."""
    parts = []
    if job.last_attempted_at is not None:
        waited = _seconds(job.waiting_since, job.last_attempted_at)
        parts.append(_("waited %s") % duration(waited))
    if job.finished_at is not None and job.last_attempted_at is not None:
        parts.append(_("ran %s") % duration(_seconds(job.last_attempted_at, job.finished_at)))
    return " · ".join(parts)


def _seconds(begin: datetime | None, end: datetime) -> float | None:
    return None if begin is None else max(0.0, (aware(end) - aware(begin)).total_seconds())
