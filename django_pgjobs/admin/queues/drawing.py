"""Drawing the page of all queues and that of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from django_pgjobs.admin.breadcrumbs import step
from django_pgjobs.admin.bulk.asking import bulk_address
from django_pgjobs.admin.numbers import as_of, queue_queries
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.queues.forms import PauseForm
from django_pgjobs.admin.svg import Spark, build_spark
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.control.numbers import Hour, QueueLine, queue_lines, read_hour
from django_pgjobs.models import Worker
from django_pgjobs.permissions import Verb, may
from django_pgjobs.queries import queue_pages
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.numbers import list_peaks
from django_pgjobs.queries.queue_pages import QueueRow, Queues
from django_pgjobs.results import local_time
from django_pgjobs.status import JobStatus, PauseKind

MAX_WORKERS = 50
# Queues without a worker that are warned about one by one.
MAX_WARNINGS = 5
# The line of ready jobs is of the last three hours, a bar for ten minutes.
STEP_SECONDS = 600
STEPS = 18


def draw_queues(model_admin: PageAdmin, request: HttpRequest) -> HttpResponse:
    """Return the page of all queues, and of the pauses of tasks and keys."""
    with job_cursor() as cursor:
        hour = read_hour(cursor)
        queues = queue_pages.list_queues(cursor, also_names=hour.queue_names)
        pauses = queue_pages.list_pauses(cursor)
        peaks = _peaks(cursor, queues.rows)
    shown = _shown(model_admin, queues.rows, hour, peaks)
    unserved = [queue for queue in shown if queue.row.is_unserved]
    context = {
        "title": _("Queues"),
        "queues": shown,
        "unserved": unserved[:MAX_WARNINGS],
        "more_unserved": max(0, len(unserved) - MAX_WARNINGS),
        "pauses": [{"row": row, "kind": PauseKind(row.kind).label} for row in pauses],
        "is_cut": queues.has_more or len(pauses) >= queue_pages.MAX_PAUSES,
        "max_rows": queue_pages.MAX_QUEUES,
        "add_url": model_admin.url("pgjobs_queuesettings_add"),
        **_ages(queues, hour),
        **_addresses(model_admin, request),
    }
    return model_admin.render_page(request, "queues.html", context)


def draw_queue(model_admin: PageAdmin, request: HttpRequest, name: str) -> HttpResponse:
    """Return the page of one queue, which may be one that nothing is known of."""
    with job_cursor() as cursor:
        hour = read_hour(cursor)
        names = hour.queue_names & {name}
        queues = queue_pages.list_queues(cursor, also_names=names, queue_name=name)
        peaks = _peaks(cursor, queues.rows)
        running = queue_pages.list_running_in_queue(cursor, name)
    shown = _shown(model_admin, queues.rows, hour, peaks)
    queue = shown[0] if shown else None
    context = {
        "title": _("Queue %(name)s") % {"name": name},
        "steps": [step(model_admin, _("Queues"), "pgjobs_queuesettings_changelist")],
        "name": name,
        "queue": queue,
        "queries": queue_queries(queue.line) if queue else {},
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
        "form": _pause_form(name, queue.row if queue else None),
        "cancel_url": _cancel_url(model_admin, request, queue) if queue else "",
        **_ages(queues, hour),
        **_addresses(model_admin, request),
    }
    return model_admin.render_page(request, "queue.html", context)


def _ages(queues: Queues, hour: Hour) -> dict[str, Any]:
    now = timezone.now()
    return {
        "now": now,
        "size_age": as_of(queues.size.measured_at, now),
        "hour_age": as_of(hour.upto, now),
    }


def _addresses(model_admin: PageAdmin, request: HttpRequest) -> dict[str, Any]:
    return {
        "may_control": may(request.user, Verb.CONTROL_QUEUES),
        "jobs_url": model_admin.url("pgjobs_job_changelist"),
        "pause_url": model_admin.url("pgjobs_queue_pause"),
        "resume_url": model_admin.url("pgjobs_queue_resume"),
        "here": request.get_full_path(),
    }


def queue_url(model_admin: PageAdmin, name: str) -> str:
    """Return the address of the page of a queue."""
    return f"{model_admin.url('pgjobs_queue')}?{urlencode({'name': name})}"


class ShownQueue(NamedTuple):
    """A queue as a template shows it: its numbers, addresses, and how many jobs were ready."""

    line: QueueLine
    url: str
    settings_url: str
    spark: Spark

    @property
    def row(self) -> QueueRow:
        """What holds for the queue."""
        return self.line.row


def _peaks(cursor: Cursor, rows: Sequence[QueueRow]) -> dict[str, dict[int, int]]:
    return list_peaks(
        cursor,
        seconds=STEP_SECONDS * STEPS,
        step_seconds=STEP_SECONDS,
        queue_names=[row.name for row in rows],
    )


def _shown(
    model_admin: PageAdmin,
    rows: Sequence[QueueRow],
    hour: Hour,
    peaks: Mapping[str, Mapping[int, int]],
) -> list[ShownQueue]:
    last = int(timezone.now().timestamp()) // STEP_SECONDS
    steps = range(last - STEPS + 1, last + 1)
    return [
        ShownQueue(
            line,
            queue_url(model_admin, line.name),
            _settings_url(model_admin, line.row),
            build_spark(peaks.get(line.name, {}).get(step, 0) for step in steps),
        )
        for line in queue_lines(rows, hour)
    ]


def _settings_url(model_admin: PageAdmin, row: QueueRow) -> str:
    if row.boost is not None:
        return model_admin.url("pgjobs_queuesettings_change", quote(row.name))
    url = model_admin.url("pgjobs_queuesettings_add")
    return f"{url}?{urlencode({'queue_name': row.name})}"


def _pause_form(name: str, row: QueueRow | None) -> PauseForm:
    initial: dict[str, object] = {"kind": PauseKind.QUEUE.value, "name": name}
    if row is not None and row.paused_at is not None:
        initial |= {"reason": row.reason, "until": local_time(row.resume_at)}
    return PauseForm(initial=initial).hide_target()


class ServingWorker(NamedTuple):
    """A live worker that serves the queue of a page."""

    name: str
    slots: int
    url: str


def _serving(model_admin: PageAdmin, name: str) -> list[ServingWorker]:
    """Return the live workers that take jobs of a queue."""
    live = Worker.objects.filter(
        Worker.that_is_live(), quiet_requested_at=None, stop_requested_at=None
    )
    fields = ("name", "queues", "excluded_queues", "slots")
    serving = (
        ServingWorker(worker.name, worker.slots, model_admin.url("pgjobs_worker_change", worker.pk))
        for worker in live.only(*fields).order_by("pk").iterator()
        if name not in worker.excluded_queues and name in (worker.queues or [name])
    )
    return list(islice(serving, MAX_WORKERS))


def _cancel_url(model_admin: PageAdmin, request: HttpRequest, queue: ShownQueue) -> str:
    """Return where all waiting jobs of a queue are cancelled, "" if that is not for this person."""
    size = queue.row.size
    is_empty = size is not None and not (size.ready or size.scheduled or size.retrying)
    if is_empty or not may(request.user, Verb.OPERATE):
        return ""
    lookups = {"status__in": [JobStatus.READY.value], "queue_name": queue.row.name}
    back = queue_url(model_admin, queue.row.name)
    return bulk_address(model_admin, "cancel", Selection(lookups), back=back)
