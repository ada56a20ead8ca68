"""The page Queues: what waits and runs in each, pausing them, and what holds for them."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext as _

from django_pgjobs import control
from django_pgjobs.admin.audit import record
from django_pgjobs.admin.control_admin import (
    ControlAdmin,
    KeyIsKept,
    back,
    refuse_unless_posted,
    say,
    step,
)
from django_pgjobs.admin.forms import MAX_KEY_BYTES, PauseForm, PauseRowForm, QueueSettingsForm
from django_pgjobs.admin.pages import page
from django_pgjobs.admin.queue_pages import draw_queue, draw_queues
from django_pgjobs.client import job_database
from django_pgjobs.permissions import Verb, require
from django_pgjobs.status import PauseKind


class QueueSettingsAdmin(KeyIsKept):
    """The page of all queues, of one queue, and the form of its settings."""

    nav_key = "queues"
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
            return self._draw_pause(request, PauseForm(initial={"kind": "queue", **initial}))
        form = PauseForm(request.POST)
        if not form.is_valid():
            return self._draw_pause(request, form)
        kind, name = form.cleaned_data["kind"], form.cleaned_data["name"]
        try:
            with transaction.atomic(using=job_database()):
                changed = control.pause(
                    **{kind: name},
                    reason=form.cleaned_data["reason"],
                    by=request.user.get_username(),
                    until=form.end,
                )
        except ValueError as error:
            form.add_error(None, str(error))
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

    def resume_view(self, request: HttpRequest) -> HttpResponse:
        """Resume a queue, a task or a key."""
        refused = refuse_unless_posted(request, Verb.CONTROL_QUEUES)
        if refused:
            return refused
        # Forms say kind and name; the buttons of a list say both in one.
        kind, _space, name = request.POST.get("target", "").partition(" ")
        kind, name = request.POST.get("kind", kind), request.POST.get("name", name)
        otherwise = self.url("pgjobs_queuesettings_changelist")
        if kind not in PauseKind.values or not 0 < len(name.encode()) <= MAX_KEY_BYTES:
            say(request, _("The request names nothing that can be paused."), is_good=False)
            return back(request, otherwise)
        try:
            with transaction.atomic(using=job_database()):
                was_paused = control.resume(**{kind: name})
        except ValueError as error:
            say(request, str(error), is_good=False)
            return back(request, otherwise)
        if was_paused:
            record(request.user, f"resume_{kind}", target=name, site=self.admin_site)
            say(request, _("Resumed: %(name)s.") % {"name": name})
        else:
            say(request, _("It was not paused: %(name)s.") % {"name": name}, is_good=False)
        return back(request, otherwise)

    def _draw_pause(self, request: HttpRequest, form: PauseForm) -> HttpResponse:
        context = {
            "title": _("Pause"),
            "form": form,
            "next": request.POST.get("next") or request.GET.get("next", ""),
            "steps": [step(self, _("Queues"), "pgjobs_queuesettings_changelist")],
        }
        return self.render_page(request, "pause.html", context)


class PauseAdmin(ControlAdmin):
    """What is paused; deleting a row resumes it."""

    nav_key = "queues"
    form = PauseRowForm
    readonly_fields = ("paused_by", "paused_at")

    def draw_list(self, request: HttpRequest) -> HttpResponse:
        """Return the page of all queues, and under them all pauses."""
        return draw_queues(self, request)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.paused_by = request.user.get_username()
        super().save_model(request, obj, form, change)
