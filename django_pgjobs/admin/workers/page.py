"""The page Workers: who is there, what they run, and how to quiet and stop them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgjobs.admin.answering import back, refuse_unless_posted, say
from django_pgjobs.admin.breadcrumbs import step
from django_pgjobs.admin.pages import ListPageAdmin, page, require_a_look, within_budget
from django_pgjobs.admin.workers.orders import carry_out_for, parse_order
from django_pgjobs.control.workers import (
    heartbeat_of,
    is_live,
    read_worker,
    read_workers,
    state_of,
)
from django_pgjobs.declaring.registry import is_own
from django_pgjobs.models import Token
from django_pgjobs.orders import ALL, WorkerOrder
from django_pgjobs.permissions import Verb, may
from django_pgjobs.queries import worker_pages
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.worker_pages import HeldRow, WorkerRow

# Running jobs on the page of one.
MAX_JOBS_OF_ONE = 50
MAX_TASKS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownWorker:
    """A worker as a template shows it; *state* and *heartbeat* are keys of the tables below.

    It holds *held* jobs, up to one more than *max_counted*, and so many of them ahead of its slots.
    *jobs* are those that are listed, each with its address; of the *more_jobs* *max_more* are
    counted. *token* is the one of a worker over HTTP, if that is still there: its
    name and its address.
    """

    row: WorkerRow
    url: str
    state: str
    state_icon: str
    state_label: Any
    heartbeat: str
    heartbeat_icon: str
    heartbeat_label: Any
    is_live: bool
    held: int
    max_counted: int
    held_ahead: int
    jobs: list[tuple[HeldRow, str]]
    more_jobs: int
    max_more: int
    token: tuple[str, str] | None


# State -> icon and word.
STATES = {
    "running": ("▶", gettext_lazy("Running")),
    "quiet": ("‖", gettext_lazy("Quiet")),
    "stopping": ("◷", gettext_lazy("Stopping")),
    "ended": ("●", gettext_lazy("Ended")),
    "lost": ("✕", gettext_lazy("Lost")),
}
HEARTBEATS = {
    "on-time": ("✓", gettext_lazy("on time")),
    "late": ("◷", gettext_lazy("late")),
    "lost": ("✕", gettext_lazy("lost")),
}
DONE = {
    "quiet": gettext_lazy("Asked to claim no new jobs"),
    "resume": gettext_lazy("Asked to take jobs again"),
    "stop": gettext_lazy("Asked to stop"),
    "forget": gettext_lazy("Forgotten"),
}


class WorkerAdmin(ListPageAdmin):
    """Live and recent worker processes."""

    nav_key: ClassVar[str] = "workers"
    actions = None

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("control/", wrap(self.control_view), name="pgjobs_worker_control"),
            *super().get_urls(),
        ]

    def draw_list(self, request: HttpRequest) -> HttpResponse:
        """Return the list of workers with what they run."""
        with job_cursor() as cursor:
            found = read_workers(cursor)
        rows, most = found.rows, found.max_counted
        tokens = self._tokens_of(rows)
        workers = [self._shown(row, found.running.get(row.id, []), tokens, most) for row in rows]
        context = {
            "title": _("Workers"),
            "workers": workers,
            "live": len(found.live),
            "any_quiet": any(row.is_quiet and not row.has_ended for row in rows),
            "any_forgettable": any(row.has_ended and row.lost for row in rows),
            "are_mixed": found.are_mixed,
            "is_cut": found.is_cut,
            "max_rows": worker_pages.MAX_WORKERS,
            **self._control_context(request),
        }
        return self.render_page(request, "workers.html", context)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        require_a_look(request)
        return within_budget(self, request, lambda: self._draw_worker(request, object_id))

    def _draw_worker(self, request: HttpRequest, object_id: str) -> HttpResponse:
        worker = self.get_object(request, unquote(object_id))
        if worker is None:
            text = _("Worker %(id)s is not there any more: rows are deleted a day after the end.")
            say(request, text % {"id": object_id[:40]}, is_good=False)
            return HttpResponseRedirect(self.url("pgjobs_worker_changelist"))
        with job_cursor() as cursor:
            found = read_worker(cursor, worker.pk, max_jobs=MAX_JOBS_OF_ONE)
        running = found.running.get(worker.pk, [])
        tasks = sorted(path for path in worker.task_paths if not is_own(path))
        context = {
            "title": _("Worker %(name)s") % {"name": worker},
            "steps": [step(self, _("Workers"), "pgjobs_worker_changelist")],
            "worker": worker,
            "facts": next(
                (
                    self._shown(row, running, self._tokens_of([row]), found.max_counted)
                    for row in found.rows
                ),
                None,
            ),
            "tasks": tasks[:MAX_TASKS],
            "task_count": len(tasks),
            "more_tasks": max(0, len(tasks) - MAX_TASKS),
            "history_url": self.url("pgjobs_worker_history", worker.pk),
            **self._control_context(request),
        }
        return self.render_page(request, "worker.html", context)

    @page
    def control_view(self, request: HttpRequest) -> HttpResponse:
        """Quiet, resume, stop or forget a worker, or all: `do` is "stop 17" or "stop all"."""
        refused = refuse_unless_posted(request, Verb.CONTROL_WORKERS)
        if refused:
            return refused
        list_url = self.url("pgjobs_worker_changelist")
        order = parse_order(request.POST.get("do", ""))
        if order is None:
            say(request, _("The request names no worker and nothing to do."), is_good=False)
            return back(request, list_url)
        if order.asks_first and "confirmed" not in request.POST:
            return self._draw_confirmation(request, order)
        count = carry_out_for(request.user, order, site=self.admin_site)
        if count:
            number = ngettext("%d worker", "%d workers", count) % count
            say(request, _("%(done)s: %(number)s.") % {"done": DONE[order.verb], "number": number})
        else:
            say(request, _("No worker is in a state for that any more."), is_good=False)
        return back(request, list_url)

    def _draw_confirmation(self, request: HttpRequest, order: WorkerOrder) -> HttpResponse:
        names = order.names()
        context = {
            "title": _("Are you sure?"),
            "steps": [step(self, _("Workers"), "pgjobs_worker_changelist")],
            "order": order,
            "names": names,
            "next": request.POST.get("next", ""),
            "list_url": self.url("pgjobs_worker_changelist"),
            **self._control_context(request),
        }
        return self.render_page(request, "worker_confirm.html", context)

    def _control_context(self, request: HttpRequest) -> dict[str, Any]:
        return {
            "may_control": may(request.user, Verb.CONTROL_WORKERS),
            "control_url": self.url("pgjobs_worker_control"),
            "all": ALL,
            "here": request.get_full_path(),
        }

    def _tokens_of(self, rows: Iterable[WorkerRow]) -> dict[int, tuple[str, str]]:
        """Return name and address of the tokens of those over HTTP, by id."""
        ids = {row.token_id for row in rows if row.token_id is not None}
        tokens = Token.objects.filter(pk__in=ids) if ids else ()
        return {
            token.pk: (str(token), self.url("pgjobs_token_change", token.pk)) for token in tokens
        }

    def _shown(
        self,
        row: WorkerRow,
        running: list[HeldRow],
        tokens: Mapping[int, tuple[str, str]],
        max_counted: int,
    ) -> ShownWorker:
        state, heartbeat = state_of(row), heartbeat_of(row)
        held = running[0].held if running else 0
        return ShownWorker(
            row=row,
            url=self.url("pgjobs_worker_change", row.id),
            state=state,
            state_icon=STATES[state][0],
            state_label=STATES[state][1],
            heartbeat=heartbeat,
            heartbeat_icon=HEARTBEATS[heartbeat][0],
            heartbeat_label=HEARTBEATS[heartbeat][1],
            is_live=is_live(row),
            held=held,
            max_counted=max_counted,
            held_ahead=max(0, held - row.slots),
            jobs=[(job, self.url("pgjobs_job_change", job.id)) for job in running],
            more_jobs=max(0, held - len(running)),
            max_more=max_counted - len(running),
            token=tokens.get(row.token_id) if row.token_id is not None else None,
        )
