"""Drawing the page of all queues and that of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from django_pgjobs.admin.bulk.asking import bulk_address
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.queues.forms import PauseForm
from django_pgjobs.bulk import Selection
from django_pgjobs.models import Worker
from django_pgjobs.permissions import Verb, may
from django_pgjobs.queries import queue_pages
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.queue_pages import QueueRow
from django_pgjobs.status import JobStatus, PauseKind

MAX_WORKERS = 50
# Queues without a worker that are warned about one by one.
MAX_WARNINGS = 5


def draw_queues(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page of all queues, and of the pauses of tasks and keys."""
    with connections[job_database()].cursor() as cursor:
        rows = queue_pages.list_queues(cursor)
        pauses = queue_pages.list_pauses(cursor)
    may_control = may(request.user, Verb.CONTROL_QUEUES)
    queues = [_shown(model_admin, row) for row in rows]
    unserved = [queue for queue in queues if queue.is_unserved]
    context = {
        "title": _("Queues"),
        "queues": queues,
        "unserved": unserved[:MAX_WARNINGS],
        "more_unserved": max(0, len(unserved) - MAX_WARNINGS),
        "pauses": [{"row": row, "kind": PauseKind(row.kind).label} for row in pauses],
        "is_cut": len(rows) >= queue_pages.MAX_QUEUES or len(pauses) >= queue_pages.MAX_PAUSES,
        "due_is_cut": sum(row.scheduled + row.retrying for row in rows) >= queue_pages.MAX_DUE,
        "max_due": queue_pages.MAX_DUE,
        "max_rows": queue_pages.MAX_QUEUES,
        "may_control": may_control,
        "pause_url": model_admin.url("pgjobs_queue_pause"),
        "resume_url": model_admin.url("pgjobs_queue_resume"),
        "add_url": model_admin.url("pgjobs_queuesettings_add"),
        "here": request.get_full_path(),
    }
    return model_admin.render_page(request, "queues.html", context)


def draw_queue(model_admin: PageAdmin, request: HttpRequest, name: str) -> HttpResponse:
    """Return the page of one queue, which may be one that nothing is known of."""
    with connections[job_database()].cursor() as cursor:
        rows = {row.name: row for row in queue_pages.list_queues(cursor)}
        running = queue_pages.list_running_in_queue(cursor, name)
    row = rows.get(name)
    list_url = model_admin.url("pgjobs_queuesettings_changelist")
    context = {
        "title": _("Queue %(name)s") % {"name": name},
        "steps": [{"label": _("Queues"), "url": list_url}],
        "name": name,
        "queue": _shown(model_admin, row) if row is not None else None,
        "running": [
            {
                "row": job,
                "url": model_admin.url("pgjobs_job_change", job.id),
                "worker_url": model_admin.url("pgjobs_worker_change", job.worker_id)
                if job.worker_id is not None
                else "",
            }
            for job in running
        ],
        "workers": _serving(model_admin, name),
        "may_control": may(request.user, Verb.CONTROL_QUEUES),
        "form": _pause_form(name, row),
        "pause_url": model_admin.url("pgjobs_queue_pause"),
        "resume_url": model_admin.url("pgjobs_queue_resume"),
        "cancel_url": _cancel_url(model_admin, request, row) if row is not None else "",
        "here": request.get_full_path(),
    }
    return model_admin.render_page(request, "queue.html", context)


def queue_url(model_admin: PageAdmin, name: str) -> str:
    """Return the address of the page of a queue."""
    return f"{model_admin.url('pgjobs_queue')}?{urlencode({'name': name})}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownQueue:
    """What a template says of a queue: its row, addresses, how full it is.

    No live worker takes the jobs of one that *is_unserved*; *ready_cap* is what its ready jobs
    are counted up to.
    """

    row: QueueRow
    url: str
    settings_url: str
    is_full: bool
    is_unserved: bool
    ready_cap: int


def _shown(model_admin: PageAdmin, row: QueueRow) -> ShownQueue:
    if row.boost is None:
        settings_url = model_admin.url("pgjobs_queuesettings_add")
        settings_url += "?" + urlencode({"queue_name": row.name})
    else:
        settings_url = model_admin.url("pgjobs_queuesettings_change", quote(row.name))
    return ShownQueue(
        row=row,
        url=queue_url(model_admin, row.name),
        settings_url=settings_url,
        is_full=row.max_running is not None and row.running >= row.max_running,
        is_unserved=not row.workers and row.ready > 0,
        ready_cap=row.ready - 1 if row.ready_is_cut else row.ready,
    )


def _pause_form(name: str, row: QueueRow | None) -> PauseForm:
    initial: dict[str, object] = {"kind": PauseKind.QUEUE.value, "name": name}
    if row is not None and row.paused_at is not None:
        initial |= {"reason": row.reason, "until": row.resume_at}
    return PauseForm(initial=initial).hide_target()


class ServingWorker(NamedTuple):
    """A live worker that serves the queue of a page."""

    name: str
    slots: int
    url: str


def _serving(model_admin: PageAdmin, name: str) -> list[ServingWorker]:
    """Return the live workers that serve a queue."""
    live = Worker.objects.filter(Worker.that_is_live())
    fields = ("name", "queues", "excluded_queues", "slots")
    return [
        ServingWorker(worker.name, worker.slots, model_admin.url("pgjobs_worker_change", worker.pk))
        for worker in live.only(*fields).order_by("pk")[:MAX_WORKERS]
        if name not in worker.excluded_queues and name in (worker.queues or [name])
    ]


def _cancel_url(model_admin: PageAdmin, request: HttpRequest, row: QueueRow) -> str:
    """Return where all waiting jobs of a queue are cancelled, "" if that is not for this person."""
    if not may(request.user, Verb.OPERATE) or not (row.ready or row.scheduled or row.retrying):
        return ""
    lookups = {"status__in": [JobStatus.READY.value], "queue_name": row.name}
    back = queue_url(model_admin, row.name)
    return bulk_address(model_admin, "cancel", Selection(lookups), back=back)
