"""The actions on one job: the buttons of its page, and what they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin import audit
from django_pgjobs.admin.answering import back
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.refusals import in_words
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.dependants import count_dependants
from django_pgjobs.bulk.preview import ENDING
from django_pgjobs.control import lifecycle
from django_pgjobs.control.pauses import MAX_REASON
from django_pgjobs.drawing import CURRENT_ZONE
from django_pgjobs.exceptions import DuplicateJob, JobError
from django_pgjobs.models import Dependency, Job
from django_pgjobs.permissions import Verb, may, narrow, require, visible_ids
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.status import FINISHED, UNFINISHED, Hold, JobStatus
from django_pgjobs.values.job_ids import parse_job_id

# What the address of the page has for the form that is open: the one that was refused.
OPEN = "open"


class WhenForm(forms.Form):
    """When a job is to run, and why somebody wants that."""

    at = forms.DateTimeField(
        label=gettext_lazy("Time"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
        help_text=CURRENT_ZONE,
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"), required=False, max_length=MAX_REASON, strip=True
    )


class JobOrder(NamedTuple):
    """What a form of the page asks for: at which time, and why; *user* sent it."""

    user: Any
    at: datetime | None
    reason: str


@dataclass(frozen=True)
class JobAction:
    """Something that can be done to a job: *hint* says what it does, *asks* what its form asks.

    *apply* returns False if the job had changed meanwhile, so that nothing was done.
    """

    name: str
    label: Any
    hint: Any
    done: Any
    verb: Verb
    suits: Callable[[Job], bool]
    apply: Callable[[Job, JobOrder], bool]
    asks: str = ""


class ActionButton(NamedTuple):
    """An action as the page offers it: a button, or a form behind a disclosure.

    So many *dependants* go with the job (None: too long to count), which is said first. One that
    *is_open* was sent a moment ago, and refused.
    """

    name: str
    label: str
    hint: str
    url: str
    form: WhenForm | None
    asks: str
    dependants: int | None = 0
    is_open: bool = False


def _with_bulk(name: str) -> Callable[[Job, JobOrder], bool]:
    """Return what does to one job what the action *name* does to many."""

    def apply(job: Job, order: JobOrder) -> bool:
        database = job_database()
        note = f"discarded by {order.user.get_username()}" + (
            f": {order.reason}" if order.reason else ""
        )
        with transaction.atomic(using=database), connections[database].cursor() as cursor:
            effect = ACTIONS[name].apply(cursor, [job.pk], {"note": note})
        return bool(effect.changed)

    return apply


def _can_be_cancelled(job: Job) -> bool:
    is_asked = job.cancel_requested_at is not None
    return job.status == JobStatus.READY or (job.status == JobStatus.RUNNING and not is_asked)


def _is_ready(job: Job) -> bool:
    return job.status == JobStatus.READY


def _waits_for_a_time(job: Job) -> bool:
    # What waits for other jobs goes on with them, not because somebody wants it to.
    return _is_ready(job) and (job.due_at is not None or job.hold == Hold.PREDECESSOR_FAILED)


def _is_finished(job: Job) -> bool:
    return job.status in FINISHED


JOB_ACTIONS = {
    action.name: action
    for action in (
        JobAction(
            "requeue",
            gettext_lazy("Requeue now"),
            gettext_lazy("It gets new attempts, and runs as soon as a worker takes it."),
            gettext_lazy("The job has new attempts."),
            Verb.OPERATE,
            _is_finished,
            lambda job, order: lifecycle.requeue(job, run_after=order.at),
        ),
        JobAction(
            "requeue_at",
            gettext_lazy("Requeue at…"),
            gettext_lazy("It gets new attempts, and runs at this time."),
            gettext_lazy("The job has new attempts."),
            Verb.OPERATE,
            _is_finished,
            lambda job, order: lifecycle.requeue(job, run_after=order.at),
            asks="time",
        ),
        JobAction(
            "run_now",
            gettext_lazy("Run now"),
            gettext_lazy("It waits for its time no longer."),
            gettext_lazy("The job may run now."),
            Verb.OPERATE,
            _waits_for_a_time,
            lambda job, order: lifecycle.reschedule(job, None),
        ),
        JobAction(
            "postpone",
            gettext_lazy("Postpone…"),
            gettext_lazy("It does not run before this time."),
            gettext_lazy("The job was moved to another time."),
            Verb.OPERATE,
            _is_ready,
            lambda job, order: lifecycle.reschedule(job, order.at),
            asks="time",
        ),
        JobAction(
            "cancel",
            gettext_lazy("Cancel"),
            gettext_lazy("A job that waits does not run; one that runs is asked to end."),
            gettext_lazy("The job is cancelled, or was asked to end."),
            Verb.OPERATE,
            _can_be_cancelled,
            lambda job, order: lifecycle.cancel(job),
        ),
        JobAction(
            "discard",
            gettext_lazy("Discard…"),
            gettext_lazy("It ends as cancelled, with the reason as its note. It can be requeued."),
            gettext_lazy("The job was discarded."),
            Verb.OPERATE,
            lambda job: job.status in (JobStatus.READY, JobStatus.FAILED),
            _with_bulk("discard"),
            asks="reason",
        ),
        JobAction(
            "delete",
            gettext_lazy("Delete…"),
            gettext_lazy("Its row goes, with arguments, errors and result."),
            gettext_lazy("The job was deleted."),
            Verb.DELETE,
            _is_finished,
            _with_bulk("delete"),
            asks="reason",
        ),
    )
}


def buttons_for(model_admin: PageAdmin, request: HttpRequest, job: Job) -> list[ActionButton]:
    """Return what the person may do to the job as it is."""
    suiting = [action for action in JOB_ACTIONS.values() if action.suits(job)]
    allowed = {verb: may(request.user, verb, job) for verb in {action.verb for action in suiting}}
    edges = Dependency.objects.filter(predecessor_id=job.pk)
    has_dependants = job.status in UNFINISHED and edges.exists()
    dependants = count_dependants(Job.objects.filter(pk=job.pk)) if has_dependants else 0
    return [
        ActionButton(
            action.name,
            str(action.label),
            str(action.hint),
            model_admin.url("pgjobs_job_do", job.pk, action.name),
            WhenForm(auto_id=f"id_{action.name}_%s") if action.asks else None,
            action.asks,
            dependants if action.name in ENDING else 0,
            request.GET.get(OPEN) == action.name,
        )
        for action in suiting
        if allowed[action.verb]
    ]


def do(model_admin: PageAdmin, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
    """Do what a button of the page says; answer with a message, on the page it came from."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    action = JOB_ACTIONS.get(name)
    require(request, Verb.VIEW if action is None else action.verb)
    job_id = parse_job_id(object_id)
    jobs = Job.objects.defer("args", "kwargs", "result", "errors", "metadata")
    visible = narrow(request.user, Verb.VIEW, jobs.filter(pk=job_id or 0))
    job = visible.first()
    address = model_admin.url("pgjobs_job_change", object_id)
    if job is None or action is None:
        text = _("There is no such action.") if action is None else _("This job does not exist.")
        messages.error(request, text)
        return HttpResponseRedirect(address)
    require(request, action.verb, job)
    form = WhenForm(request.POST)
    if not form.is_valid() or (action.asks == "time" and form.cleaned_data["at"] is None):
        messages.error(request, _("Nothing was done: give a time, such as 2030-12-31 18:00."))
        return HttpResponseRedirect(f"{address}?{urlencode({OPEN: action.name})}")
    # Only where the form shows the field: a time does not slip in with another action.
    at = form.cleaned_data["at"] if action.asks == "time" else None
    was_done = _carry_out(
        model_admin, request, action, job, JobOrder(request.user, at, form.cleaned_data["reason"])
    )
    if was_done and action.name == "delete":
        address = model_admin.url("pgjobs_job_changelist")
    return back(request, address)


def _carry_out(
    model_admin: PageAdmin, request: HttpRequest, action: JobAction, job: Job, order: JobOrder
) -> bool:
    """Do it, write it down, and say what came of it."""
    try:
        was_done = action.apply(job, order)
    except DuplicateJob as error:
        messages.error(request, _twin_message(model_admin, request, error.job_id))
        return False
    except (JobError, TypeError, ValueError) as error:
        messages.error(request, _("Nothing was done: %(error)s") % {"error": in_words(error)})
        return False
    if not was_done:
        status = rows_of(Job).filter(pk=job.pk).values_list("status", flat=True).first()
        label = JobStatus(status).label if status in JobStatus.values else _("deleted")
        said = _("Nothing was done: the job changed meanwhile; it is %(status)s now.")
        messages.warning(request, said % {"status": label})
        return False
    verb = "requeue" if action.name == "requeue_at" else action.name
    audit.record(request.user, verb, job=job, count=1, reason=order.reason)
    messages.success(request, action.done)
    return True


def _twin_message(model_admin: PageAdmin, request: HttpRequest, twin_id: int | None) -> str:
    """Return that another job has the unique key, and which if the person may see it."""
    text = _("Nothing was done: another unfinished job has its unique key.")
    if twin_id is None or not visible_ids(request.user, [twin_id]):
        return text
    address = model_admin.url("pgjobs_job_change", twin_id)
    return format_html('{} <a href="{}">{}</a>', text, address, _("Job %(id)s") % {"id": twin_id})
