"""How far a bulk change is: its page, its end in one sentence, and the list of recent ones."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgjobs.admin.audit import record
from django_pgjobs.admin.breadcrumbs import jobs_step, step
from django_pgjobs.admin.pages import PageAdmin, page
from django_pgjobs.admin.refusals import in_words
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.changes import PassedOver, cancel_change, find_user
from django_pgjobs.bulk.job import drop_job, enqueue_change
from django_pgjobs.models import BulkChange, Job
from django_pgjobs.permissions import Verb, may, may_end, narrow_changes, visible_ids
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.queries.explain import get_workers
from django_pgjobs.status import FINISHED

# Changes that the list shows.
MAX_CHANGES = 50
# Live workers that are asked whether one of them takes the job.
MAX_WORKERS = 1_000


@page
def draw_changes(job_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the list of the newest bulk changes."""
    changes = list(_changes(request).order_by("-id")[:MAX_CHANGES])
    names = _names({change.user_id for change in changes})
    context = {
        "title": _("Bulk changes"),
        "steps": [jobs_step(job_admin)],
        "rows": [
            {
                "change": change,
                "label": _label(change),
                "who": names.get(change.user_id, change.user_id),
                "state": _state(change, None),
                "result": result_message(job_admin, change, request.user),
                "url": job_admin.url("pgjobs_job_bulk_progress", change.pk),
            }
            for change in changes
        ],
        "max_changes": MAX_CHANGES,
    }
    return job_admin.render_page(request, "bulk_list.html", context)


def draw_progress(job_admin: PageAdmin, request: HttpRequest, change_id: int) -> HttpResponse:
    """Return the page of one change; a POST cancels it, or lets a worker go on with it."""
    if not may(request.user, Verb.VIEW):
        raise PermissionDenied
    change = _changes(request).filter(pk=change_id).first()
    if change is None:
        raise Http404(_("There is no such bulk change."))
    if request.method == "POST":
        return _act(job_admin, request, change)
    return _draw(job_admin, request, change)


@page
def _draw(job_admin: PageAdmin, request: HttpRequest, change: BulkChange) -> HttpResponse:
    jobs = Job.objects.using(job_database()).only("id", "status", "queue_name", "backend")
    job = jobs.filter(pk=change.job_id).first() if change.job_id is not None else None
    done = change.changed + change.passed_over + change.conflicts
    is_open = change.finished_at is None
    action = ACTIONS.get(change.verb)
    user = find_user(change)
    context = {
        "title": f"{_label(change)} #{change.pk}",
        "steps": [
            jobs_step(job_admin),
            step(job_admin, _("Bulk changes"), "pgjobs_job_bulk"),
        ],
        "change": change,
        "who": user.get_username() if user is not None else change.user_id,
        "job": job,
        "job_url": job_admin.url("pgjobs_job_change", job.pk)
        if job and visible_ids(request.user, [job.pk])
        else "",
        "state": _state(change, job),
        "result": result_message(job_admin, change, request.user),
        "percent": min(100 * done // change.total, 100) if change.total else None,
        "so_far": _so_far(done, change.total),
        "is_open": is_open,
        "nobody_listens": is_open and job is not None and _nobody_takes(job),
        "can_act": is_open and action is not None and may_end(request.user, action.verb, change),
        "can_continue": job is None or job.status in FINISHED,
    }
    return job_admin.render_page(request, "bulk_progress.html", context)


def _act(job_admin: PageAdmin, request: HttpRequest, change: BulkChange) -> HttpResponse:
    action = ACTIONS.get(change.verb)
    if action is None or not may_end(request.user, action.verb, change):
        raise PermissionDenied
    if "cancel" in request.POST:
        if cancel_change(change.pk):
            drop_job(change)
            record(request.user, "cancel", obj=change, site=job_admin.admin_site)
    elif "continue" in request.POST and change.finished_at is None:
        enqueue_change(change)
        record(request.user, "continue", obj=change, site=job_admin.admin_site)
    return HttpResponseRedirect(job_admin.url("pgjobs_job_bulk_progress", change.pk))


def _changes(request: HttpRequest) -> QuerySet[BulkChange]:
    """Return the changes that the person may see."""
    return narrow_changes(request.user, BulkChange.objects.using(job_database()))


def result_message(job_admin: PageAdmin, change: BulkChange, user: Any) -> SafeString:
    """Return what a change has come to in one sentence, with links to jobs in conflict.

    They are those that *user* may see.
    """
    parts: list[Any] = [_changed(change)]
    missed = _missed(change)
    if missed:
        text = ngettext("%s passed over", "%s passed over", missed)
        parts.append(text % number_format(missed, force_grouping=True))
    if change.conflicts:
        text = ngettext(
            "%s in conflict with a unique job", "%s in conflict with unique jobs", change.conflicts
        )
        links = format_html_join(", ", '<a href="{}">#{}</a>', _links(job_admin, change, user))
        said = text % number_format(change.conflicts, force_grouping=True)
        parts.append(format_html("{} ({})", said, links) if links else said)
    if change.cancel_requested_at is not None:
        parts.append(_("then cancelled"))
    said = format_html_join(", ", "{}", ((part,) for part in parts))
    return format_html("{}. {}", said, change.error) if change.error else format_html("{}.", said)


def example_of(passed_over: PassedOver) -> str:
    """Return a sentence on one of the jobs that a change passed over, and why it did."""
    values = {"id": passed_over.job_id, "why": in_words(passed_over.why)}
    return _("For example job %(id)s: %(why)s") % values


def _links(job_admin: PageAdmin, change: BulkChange, user: Any) -> list[tuple[str, int]]:
    """Return the address and the id of the jobs that are in the way, or of those they stop."""
    ids = [twin_id or job_id for job_id, twin_id in change.conflict_ids]
    seen = visible_ids(user, ids)
    return [
        (job_admin.url("pgjobs_job_change", job_id), job_id) for job_id in ids if job_id in seen
    ]


def _missed(change: BulkChange) -> int:
    """Return how many jobs of the preview were not there any more, or were somebody else's."""
    ended_well = change.finished_at and not change.cancel_requested_at and not change.error
    if not ended_well or change.total is None:
        return change.passed_over
    return max(change.passed_over, change.total - change.changed - change.conflicts)


def _changed(change: BulkChange) -> str:
    count = change.changed
    texts = {
        "requeue": ngettext("%s job requeued", "%s jobs requeued", count),
        "run_now": ngettext("%s job may run now", "%s jobs may run now", count),
        "postpone": ngettext("%s job postponed", "%s jobs postponed", count),
        "cancel": ngettext("%s job cancelled", "%s jobs cancelled", count),
        "discard": ngettext("%s job discarded", "%s jobs discarded", count),
        "move": ngettext("%s job moved", "%s jobs moved", count),
        "delete": ngettext("%s job deleted", "%s jobs deleted", count),
    }
    text = texts.get(change.verb) or ngettext("%s job changed", "%s jobs changed", count)
    return text % number_format(count, force_grouping=True)


def _label(change: BulkChange) -> str:
    action = ACTIONS.get(change.verb)
    return str(action.label) if action is not None else change.verb


def _state(change: BulkChange, job: Job | None) -> str:
    """Return in words how things stand."""
    if change.cancel_requested_at is not None:
        return _("Cancelled")
    if change.finished_at is not None:
        return _("Stopped") if change.error else _("Done")
    if change.job_id is None or (job is not None and job.status in FINISHED):
        return _("Interrupted")
    return _("Waiting for a worker") if change.position is None else _("In progress")


def _so_far(done: int, total: int | None) -> str:
    """Return how far a change is, for the label of its bar."""
    number = number_format(done, force_grouping=True)
    if not total:
        return ngettext("%s job so far", "%s jobs so far", done) % number
    values = {
        "done": number,
        "total": number_format(total, force_grouping=True),
        "percent": min(100 * done // total, 100),
    }
    return _("%(done)s of %(total)s jobs (%(percent)s %%)") % values


def _names(user_ids: set[str]) -> dict[str, str]:
    """Return primary key, as text -> name of the people."""
    users = get_user_model()._default_manager
    known = {user_id for user_id in user_ids if user_id}
    try:
        found = list(users.filter(pk__in=known))
    except (TypeError, ValueError, ValidationError):
        return {}
    return {str(user.pk): user.get_username() for user in found}


def _nobody_takes(job: Job) -> bool:
    """Is there no live worker that serves the queue of a waiting job?"""
    if job.status != "ready":
        return False
    with job_cursor() as cursor:
        return not get_workers(cursor, job, max_named=0).of_queue
