"""The pages of schedules: all of them, one, and what people do about one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db import DataError, ProgrammingError, transaction
from django.forms import Media
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin.answering import back, refuse_unless_posted, say
from django_pgjobs.admin.audit import record
from django_pgjobs.admin.job_page.links import schedule_address
from django_pgjobs.admin.pages import page
from django_pgjobs.admin.queues.shared import KeyIsKept
from django_pgjobs.admin.refusals import in_words
from django_pgjobs.admin.schedules.drawing import (
    draw_schedule,
    draw_schedules,
    in_zone,
    schedules_step,
)
from django_pgjobs.admin.schedules.forms import (
    COLUMNS,
    BackfillForm,
    RunForm,
    ScheduleForm,
)
from django_pgjobs.admin.schedules.preview import URL_NAME, draw_field, draw_preview
from django_pgjobs.control.pauses import MAX_REASON
from django_pgjobs.declaring.redaction import MASK
from django_pgjobs.declaring.registry import discover_tasks_once
from django_pgjobs.models import Schedule
from django_pgjobs.permissions import Verb, require
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.schedules import control, skipping
from django_pgjobs.schedules.plans import rule_of
from django_pgjobs.schedules.syncing import OF_CODE, changed_columns, follow_code
from django_pgjobs.values.payload import is_storable

# Of a backfill that is shown before it is done.
SHOWN_PREVIEW = 50
# Of what is not skipped any more.
SHOWN_UNSKIPPED = 5


class ScheduleAdmin(KeyIsKept):
    """The page of all schedules, of one, and what is done to it."""

    nav_key = "schedules"
    control_verb = Verb.CONTROL_SCHEDULES
    form = ScheduleForm
    readonly_fields = ("preview",)

    @property
    def media(self) -> Any:
        """The script that draws the preview anew."""
        return super().media + Media(js=["pgjobs/preview.js"])

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("page/", wrap(self.schedule_view), name="pgjobs_schedule_page"),
            path("do/", wrap(self.do_view), name="pgjobs_schedule_do"),
            path("preview/", wrap(self.preview_view), name=URL_NAME),
            path("run/", wrap(self.run_view), name="pgjobs_schedule_run"),
            path("backfill/", wrap(self.backfill_view), name="pgjobs_schedule_backfill"),
            *super().get_urls(),
        ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Of a schedule of the code, task and arguments are the code's."""
        is_of_code = obj is not None and obj.declared is not None
        behind = COLUMNS.index("except_dates") + 1
        return [
            (None, {"fields": ["name", *(() if is_of_code else OF_CODE)]}),
            (_("When"), {"fields": [*COLUMNS[len(OF_CODE) : behind], "preview"]}),
            (_("Policies"), {"fields": COLUMNS[behind:]}),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Lead people who may only look to the page of the schedule.

        Django would draw read-only fields from the row, unmasked.
        """
        if request.method != "POST" and not self.has_change_permission(request):
            require(request, Verb.VIEW)
            return HttpResponseRedirect(schedule_address(self, unquote(object_id)))
        return super().change_view(request, object_id, *args, **kwargs)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row; one that is to be changed waits for those who change it now."""
        found = super().get_object(request, object_id, from_field)
        is_to_change = request.method == "POST" and self.has_change_permission(request)
        # The history is read outside of a transaction, whatever the method.
        is_lockable = transaction.get_connection(job_database()).in_atomic_block
        if found is None or not is_to_change or not is_lockable:
            return found
        return self.get_queryset(request).select_for_update().filter(pk=found.pk).first()

    @admin.display(description=gettext_lazy("Next occurrences"))
    def preview(self, row: Schedule) -> str:
        """When it is due, and with a script when it would be."""
        return draw_field(self, row)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A schedule of the code would be back with the next worker."""
        is_kept = obj is not None and obj.declared is not None and obj.retired_at is None
        return not is_kept and super().has_delete_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Write what the form has, and nothing that a scheduler may have written since."""
        if change:
            changed = set(COLUMNS) & set(form.changed_data)
            obj.changed_fields = _changed_fields(obj, changed)
            obj.save(update_fields=[*changed, "changed_fields"])
        else:
            obj.save(force_insert=True)

    def response_post_save_add(self, request: HttpRequest, obj: Any) -> HttpResponseRedirect:
        return HttpResponseRedirect(schedule_address(self, obj.name))

    response_post_save_change = response_post_save_add

    def draw_list(self, request: HttpRequest) -> HttpResponse:
        """Return the page of all schedules."""
        return draw_schedules(self, request)

    @page
    def schedule_view(self, request: HttpRequest) -> HttpResponse:
        """One schedule, `?name=`."""
        require(request, Verb.VIEW)
        row = find_schedule(request.GET.get("name", ""))
        return self._missing(request) if row is None else draw_schedule(self, request, row)

    @page
    def do_view(self, request: HttpRequest) -> HttpResponse:
        """Run, skip, pause, resume or the like the schedule that a form names."""
        refused = refuse_unless_posted(request, Verb.CONTROL_SCHEDULES)
        if refused:
            return refused
        name, verb = request.POST.get("name", ""), request.POST.get("do", "")
        row = find_schedule(name)
        if row is None or verb not in ACTS:
            return self._missing(request)
        reason = " ".join(request.POST.get("reason", "").replace("\0", "").split())[:MAX_REASON]
        try:
            with transaction.atomic(using=job_database()):
                said, is_done = ACTS[verb](name, request.user.get_username(), reason)
        except (LookupError, TypeError, ValueError, DataError, ProgrammingError) as error:
            # The last two: what a row says the code declares does not fit its columns.
            said, is_done = in_words(error), False
        if is_done:
            site = self.admin_site
            record(request.user, f"{verb}_schedule", obj=row, reason=reason, site=site)
        say(request, said, is_good=is_done)
        return back(request, schedule_address(self, name))

    @page
    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """The next occurrences of what a form has now."""
        return draw_preview(request)

    @page
    def run_view(self, request: HttpRequest) -> HttpResponse:
        """Ask for other arguments of one run; a POST enqueues it."""
        require(request, Verb.CONTROL_SCHEDULES)
        require(request, Verb.ENQUEUE)
        given = request.POST if request.method == "POST" else request.GET
        row = find_schedule(given.get("name", ""))
        if row is None:
            return self._missing(request)
        form = RunForm(row, request.POST if request.method == "POST" else None)
        if form.is_valid():
            data = form.cleaned_data
            try:
                with transaction.atomic(using=job_database()):
                    return self._run(request, row, (data["args"], data["kwargs"]))
            except (LookupError, ValueError) as error:
                form.add_error(None, in_words(error))
        context = {
            "title": _("Run now with other arguments"),
            "steps": self._steps(row),
            "name": row.name,
            "form": form,
            "is_masked": not form.is_bound and MASK in str(form.initial),
        }
        return self.render_page(request, "schedule_run.html", context)

    def _run(
        self, request: HttpRequest, row: Schedule, arguments: control.Arguments
    ) -> HttpResponse:
        said, _is_done = _run(row.name, request.user.get_username(), "", arguments)
        record(request.user, "run_schedule", obj=row, site=self.admin_site)
        say(request, said, is_good=True)
        return back(request, schedule_address(self, row.name))

    def _steps(self, row: Schedule) -> list[dict[str, str]]:
        return [schedules_step(self), {"label": row.name, "url": schedule_address(self, row.name)}]

    @page
    def backfill_view(self, request: HttpRequest) -> HttpResponse:
        """Show which occurrences a backfill would enqueue; a POST enqueues them."""
        require(request, Verb.CONTROL_SCHEDULES)
        given = request.POST if request.method == "POST" else request.GET
        row = find_schedule(given.get("name", ""))
        if row is None:
            return self._missing(request)
        form = BackfillForm(given if "begin" in given else None)
        instants: list[datetime] = []
        if form.is_valid():
            begin, end = form.cleaned_data["begin"], form.cleaned_data["end"]
            try:
                if request.method == "POST":
                    return self._backfill(request, row, begin, end)
                instants = control.occurrences_to_backfill(row.name, begin, end)
            except (LookupError, ValueError) as error:
                form.add_error(None, in_words(error))
        context = {
            "title": _("Backfill"),
            "steps": self._steps(row),
            "name": row.name,
            "form": form,
            "is_asked": form.is_bound and not form.errors,
            "instants": [(each, in_zone(rule_of(row), each)) for each in instants[:SHOWN_PREVIEW]],
            "count": len(instants),
            "more": max(0, len(instants) - SHOWN_PREVIEW),
        }
        return self.render_page(request, "schedule_backfill.html", context)

    def _backfill(
        self, request: HttpRequest, row: Schedule, begin: datetime, end: datetime
    ) -> HttpResponse:
        discover_tasks_once()
        found = control.backfill(row.name, begin, end, by=request.user.get_username())
        said = _(
            "Enqueued: %(enqueued)s, joined a job that was already there: %(joined)s, "
            "known before: %(known)s, failed: %(failed)s."
        )
        said %= found._asdict()
        target = f"{begin.isoformat()} – {end.isoformat()}"
        record(
            request.user,
            "backfill_schedule",
            obj=row,
            target=target,
            count=found.enqueued,
            site=self.admin_site,
        )
        say(request, said, is_good=not found.failed)
        return back(request, schedule_address(self, row.name))

    def _missing(self, request: HttpRequest) -> HttpResponse:
        say(request, _("There is no such schedule."), is_good=False)
        return back(request, self.url("pgjobs_schedule_changelist"))


def _changed_fields(row: Schedule, changed: set[str]) -> list[str]:
    """Return the columns that are other than in the code, if the row tells what that says."""
    try:
        return changed_columns(row)
    except (AttributeError, TypeError, ValueError):
        return sorted({*row.changed_fields, *changed})


def find_schedule(name: str) -> Schedule | None:
    """Return the row of a schedule, None if there is none."""
    if not is_storable(name):
        return None
    return rows_of(Schedule).filter(name=name).first()


def _run(
    name: str, by: str, reason: str, arguments: control.Arguments | None = None
) -> tuple[str, bool]:
    # From the settings, not from the row; drawing pages loads nothing.
    discover_tasks_once()
    job_id, is_new = control.run_now(name, by=by, arguments=arguments)
    if is_new:
        return _("Enqueued as job %(id)s.") % {"id": job_id}, True
    said = _("Already there: job %(id)s has the unique key. Nothing was enqueued.")
    return said % {"id": job_id}, True


def _skip(name: str, by: str, reason: str) -> tuple[str, bool]:
    skipped = control.skip_next(name, by=by)
    rule = rule_of(control.get_schedule(name))
    return _("Skipped: %(time)s.") % {"time": in_zone(rule, skipped)}, True


def _unskip(name: str, by: str, reason: str) -> tuple[str, bool]:
    taken_back = skipping.unskip(name)
    rule = rule_of(control.get_schedule(name))
    if not taken_back:
        return _("Nothing to come was skipped: %(name)s.") % {"name": name}, False
    times = ", ".join(in_zone(rule, each) for each in taken_back[:SHOWN_UNSKIPPED])
    return _("Not skipped any more: %(time)s.") % {"time": times}, True


def _pause(name: str, by: str, reason: str) -> tuple[str, bool]:
    if control.pause_schedule(name, by=by, reason=reason):
        return _("Paused: %(name)s. What runs goes on.") % {"name": name}, True
    return _("It was paused before: %(name)s.") % {"name": name}, False


def _resume(name: str, by: str, reason: str) -> tuple[str, bool]:
    if control.resume_schedule(name):
        return _("Resumed: %(name)s.") % {"name": name}, True
    return _("It was not paused: %(name)s.") % {"name": name}, False


def _follow(name: str, by: str, reason: str) -> tuple[str, bool]:
    follow_code(name)
    return _("It is as the code says again: %(name)s.") % {"name": name}, True


# What a form may ask for: the name of the schedule, who and why; returns what to say, and whether
# anything was done.
ACTS: dict[str, Callable[[str, str, str], tuple[str, bool]]] = {
    "run": _run,
    "skip": _skip,
    "unskip": _unskip,
    "pause": _pause,
    "resume": _resume,
    "follow": _follow,
}
