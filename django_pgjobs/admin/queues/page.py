"""The page Queues: what waits and runs in each, pausing them, and what holds for them."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext as _

from django_pgjobs.admin.answering import back, our_address, say
from django_pgjobs.admin.audit import record
from django_pgjobs.admin.breadcrumbs import step
from django_pgjobs.admin.pages import page
from django_pgjobs.admin.queues.drawing import draw_queue, draw_queues
from django_pgjobs.admin.queues.forms import PauseForm, PauseRowForm
from django_pgjobs.admin.queues.shared import ControlAdmin, KeyIsKept
from django_pgjobs.admin.refusals import in_words
from django_pgjobs.control import pauses
from django_pgjobs.limits import QueueSettingsForm
from django_pgjobs.models import Pause
from django_pgjobs.permissions import Verb, require
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import PauseKind
from django_pgjobs.values.bounds import MAX_KEY_BYTES
from django_pgjobs.values.payload import fits_column


class QueueSettingsAdmin(KeyIsKept):
    """The page of all queues, of one queue, and the form of its settings."""

    nav_key = "queues"
    walks = True
    form = QueueSettingsForm

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("pause/", wrap(self.pause_view), name="pgjobs_queue_pause"),
            path("resume/", wrap(self.resume_view), name="pgjobs_queue_resume"),
            path("queue/", wrap(self.queue_view), name="pgjobs_queue"),
            *super().get_urls(),
        ]

    def draw_list(self, request: HttpRequest) -> HttpResponse:
        """Return the page of all queues."""
        return draw_queues(self, request)

    @page
    def queue_view(self, request: HttpRequest) -> HttpResponse:
        """One queue, `?name=`."""
        require(request, Verb.VIEW)
        return draw_queue(self, request, request.GET.get("name", "").replace("\0", ""))

    @page
    def pause_view(self, request: HttpRequest) -> HttpResponse:
        """The form that pauses a queue, a task or a key; a POST does it."""
        require(request, Verb.CONTROL_QUEUES)
        if request.method != "POST":
            names = ("kind", "name", "reason")
            initial = {name: request.GET[name] for name in names if name in request.GET}
            row = find_pause(initial.get("kind", "queue"), initial.get("name", ""))
            if row is not None:  # what somebody has said of it stays, unless it is changed
                initial = {"reason": row.reason, "until": row.resume_at, **initial}
            return self._draw_pause(request, PauseForm(initial={"kind": "queue", **initial}), row)
        form = PauseForm(request.POST)
        if not form.is_valid():
            return self._draw_pause(request, form)
        kind, name = form.cleaned_data["kind"], form.cleaned_data["name"]
        try:
            with transaction.atomic(using=job_database()):
                changed = pauses.pause(
                    **{kind: name},
                    reason=form.cleaned_data["reason"],
                    by=request.user.get_username(),
                    until=form.end,
                )
        except ValueError as error:
            form.add_error(None, in_words(error))
            return self._draw_pause(request, form)
        if changed:
            record(
                request.user,
                f"pause_{kind}",
                target=name,
                reason=form.cleaned_data["reason"],
                site=self.admin_site,
            )
        say(request, _("Paused: %(name)s. What runs goes on.") % {"name": name})
        return back(request, self.url("pgjobs_queuesettings_changelist"))

    @page
    def resume_view(self, request: HttpRequest) -> HttpResponse:
        """Resume a queue, a task or a key: ask, with who paused it and why; a POST does it."""
        require(request, Verb.CONTROL_QUEUES)
        given = request.POST if request.method == "POST" else request.GET
        kind, name = given.get("kind", ""), given.get("name", "")
        otherwise = self.url("pgjobs_queuesettings_changelist")
        if not can_be_paused(kind, name):
            say(request, _("The request names nothing that can be paused."), is_good=False)
            return back(request, otherwise)
        row = find_pause(kind, name)
        if request.method != "POST":
            return self._draw_resume(request, kind, name, row)
        why = ": ".join(filter(None, (row.paused_by, row.reason))) if row is not None else ""
        try:
            with transaction.atomic(using=job_database()):
                was_paused = pauses.resume(**{kind: name})
        except ValueError as error:
            say(request, in_words(error), is_good=False)
            return back(request, otherwise)
        if was_paused:
            site = self.admin_site
            record(request.user, f"resume_{kind}", target=name, reason=why, site=site)
            say(request, _("Resumed: %(name)s.") % {"name": name})
        else:
            say(request, _("It was not paused: %(name)s.") % {"name": name}, is_good=False)
        return back(request, otherwise)

    def _draw_resume(
        self, request: HttpRequest, kind: str, name: str, row: Pause | None
    ) -> HttpResponse:
        list_url = self.url("pgjobs_queuesettings_changelist")
        context = {
            "title": _("Resume"),
            "kind": PauseKind(kind).label,
            "name": name,
            "pause": row,
            "next": request.GET.get("next", ""),
            "back_url": our_address(request, request.GET.get("next", "")) or list_url,
            "steps": [step(self, _("Queues"), "pgjobs_queuesettings_changelist")],
        }
        return self.render_page(request, "resume.html", context)

    def _draw_pause(
        self, request: HttpRequest, form: PauseForm, row: Pause | None = None
    ) -> HttpResponse:
        context = {
            "title": _("Pause"),
            "form": form,
            "is_paused": row is not None,
            "next": request.POST.get("next") or request.GET.get("next", ""),
            "steps": [step(self, _("Queues"), "pgjobs_queuesettings_changelist")],
        }
        return self.render_page(request, "pause.html", context)


def can_be_paused(kind: str, name: str) -> bool:
    """Is it what a pause can be of?"""
    return fits_column(name, MAX_KEY_BYTES) and kind in PauseKind.values


def find_pause(kind: str, name: str) -> Pause | None:
    """Return the pause in force, None if there is none."""
    if not can_be_paused(kind, name):
        return None
    rows = Pause.objects.using(job_database()).filter(Pause.that_holds(), kind=kind, name=name)
    return rows.first()


class PauseAdmin(ControlAdmin):
    """What is paused; deleting a row resumes it."""

    nav_key = "queues"
    walks = True
    form = PauseRowForm
    readonly_fields = ("paused_by", "paused_at")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Leave out who paused it and when of one that is still to be made."""
        return super().get_fields(request, obj) if obj else PauseRowForm.Meta.fields

    def draw_list(self, request: HttpRequest) -> HttpResponse:
        """Return the page of all queues, and under them all pauses."""
        return draw_queues(self, request)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.paused_by = request.user.get_username()
        super().save_model(request, obj, form, change)
