"""The page that asks before a bulk change, with a counted preview, and doing what it asked.

What the page was about travels in its form, signed: which jobs, as of when, how many. So a
person confirms what they saw, and nobody can send lookups that no page of ours has made. The
pin leaves out what is enqueued or finishes later, but not what comes into the selection in
another way (is retried, is moved): so before jobs end or are deleted, they are counted again.
"""

from __future__ import annotations

from typing import Any, TypedDict
from urllib.parse import urlencode

from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_pgjobs.admin.answering import our_address
from django_pgjobs.admin.audit import MAX_ENTRIES, record, record_jobs, record_tree
from django_pgjobs.admin.breadcrumbs import jobs_step
from django_pgjobs.admin.bulk.export import stream_jobs
from django_pgjobs.admin.bulk.forms import FORMS, BulkForm, EndingForm, ExportForm, RequeueForm
from django_pgjobs.admin.bulk.of_trees import texts_of_tree
from django_pgjobs.admin.bulk.progress import (
    draw_changes,
    draw_progress,
    example_of,
    result_message,
)
from django_pgjobs.admin.pages import PAGE_SECONDS, PageAdmin, draw_too_slow
from django_pgjobs.bulk.actions import ACTIONS, Action
from django_pgjobs.bulk.changes import create_change, first_tasks, run_change
from django_pgjobs.bulk.dependants import MAX_DEPENDANTS
from django_pgjobs.bulk.job import enqueue_change
from django_pgjobs.bulk.lookups import InvalidLookup
from django_pgjobs.bulk.preview import MAX_COUNTED, MAX_SKIPPED, Preview, preview
from django_pgjobs.bulk.selection import Selection, StoredSelection
from django_pgjobs.bulk.trees import as_counted, may_do, tree_to_retry, workflow_to_delete
from django_pgjobs.bulk.walk import allowed_to
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import BulkChange
from django_pgjobs.permissions import Verb, may
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import JobStatus

SALT = "django_pgjobs.bulk"
# A link in a page that stayed open over the weekend still works; it is counted anew.
LINK_SECONDS = 4 * 86_400
# What was confirmed later than this was perhaps not what was seen.
FORM_SECONDS = 3_600
# What the address of the page has when all is to be counted, however long it takes.
COUNT = "count"
# Larger changes are done by a background job.
INLINE_JOBS = 10_000
# To end or delete more, or nobody knows how many, takes more than a click.
UNTYPED_JOBS = 1_000


def bulk_address(job_admin: PageAdmin, verb: str, selection: Selection, *, back: str = "") -> str:
    """Return the address of the page that asks whether to do *verb* to the selected jobs.

    *verb* is a name in `django_pgjobs.bulk.ACTIONS`, *back* the address to return to.
    """
    query = {"verb": verb, "selection": _sign(selection.to_json())}
    if back:
        query["next"] = back
    return f"{job_admin.url('pgjobs_job_bulk')}?{urlencode(query)}"


def bulk_urls(job_admin: PageAdmin) -> list[URLPattern]:
    """Return the addresses of the pages of bulk changes, for `get_urls` of the jobs' admin."""
    wrap = job_admin.admin_site.admin_view

    def bulk(request: HttpRequest) -> HttpResponseBase:
        return bulk_view(job_admin, request)

    def progress(request: HttpRequest, change_id: int) -> HttpResponse:
        return draw_progress(job_admin, request, change_id)

    return [
        path("change/", wrap(bulk), name="pgjobs_job_bulk"),
        path("change/<int:change_id>/", wrap(progress), name="pgjobs_job_bulk_progress"),
    ]


def bulk_view(job_admin: PageAdmin, request: HttpRequest) -> HttpResponseBase:
    """Ask, with a preview, or do what was confirmed; without an action, list recent changes."""
    if not may(request.user, Verb.VIEW):
        raise PermissionDenied
    if "verb" not in request.GET:
        return draw_changes(job_admin, request)
    action = ACTIONS.get(request.GET["verb"])
    if action is not None and not may(request.user, action.verb):
        raise PermissionDenied
    try:
        signed = _unsign(request.GET.get("selection", ""), LINK_SECONDS)
        selection = Selection.from_json(signed)
    except (signing.BadSignature, InvalidLookup):
        selection = None
    if action is None or selection is None:
        messages.error(request, _("This link is damaged or too old. Select the jobs again."))
        return HttpResponseRedirect(job_admin.url("pgjobs_job_changelist"))
    if not may_do(request.user, action, selection):
        raise PermissionDenied
    if request.method == "POST":
        return _confirm(job_admin, request, action, selection)
    return _ask(job_admin, request, action, selection)


def back_address(job_admin: PageAdmin, request: HttpRequest) -> str:
    """Return where the person came from, if that is a page of this site, else the list."""
    given = our_address(request, request.GET.get("next", ""))
    return given or job_admin.url("pgjobs_job_changelist")


def _ask(
    job_admin: PageAdmin, request: HttpRequest, action: Action, selection: Selection
) -> HttpResponse:
    """Draw the page of confirmation; everything is read before, within a time of its own."""
    try:
        with time_budget(job_database(), PAGE_SECONDS):
            pinned = selection.pinned()
    except TooSlow:
        return draw_too_slow(job_admin, request)
    return _draw(job_admin, request, action, pinned)


def _draw(
    job_admin: PageAdmin, request: HttpRequest, action: Action, pinned: Selection
) -> HttpResponse:
    """Draw the page about a pinned selection."""
    form = _form(request, action, pinned)
    is_quick = request.method != "POST" and COUNT not in request.GET
    seen = _preview(request, action, pinned, is_quick=is_quick)
    root_id = workflow_to_delete(action.name, pinned)
    of_tree = texts_of_tree(job_admin, request, action, pinned)
    typed = ""
    if isinstance(form, EndingForm):
        typed = text_to_type(action, pinned, seen.total)
        form.ask_to_type(typed)
    is_left = is_quick and not seen.is_counted
    context = {
        "title": of_tree.title if of_tree else _title(action),
        "steps": of_tree.steps if of_tree else [jobs_step(job_admin)],
        "action": action,
        "form": form,
        "preview": seen,
        "max_counted": MAX_COUNTED,
        "max_dependants": MAX_DEPENDANTS,
        "token": _token(request, action, pinned, seen, typed),
        "back": back_address(job_admin, request),
        "count_url": f"{request.get_full_path()}&{COUNT}=1" if is_left else "",
        "is_large": seen.total > INLINE_JOBS
        if seen.total is not None
        else seen.is_capped or not is_left,
        "max_skipped": MAX_SKIPPED,
        "runs_again": _what_runs_again(action, pinned, seen),
        "can_run": seen.total != 0 or seen.more != 0 or root_id is not None,
        "lead": of_tree.lead if of_tree else "",
        "is_pinned": root_id is None and tree_to_retry(action.name, pinned) is None,
        "pgjobs_page": "workflows" if of_tree else job_admin.nav_key,
    }
    return job_admin.render_page(request, "bulk_confirm.html", context)


def _preview(
    request: HttpRequest, action: Action, selection: Selection, *, is_quick: bool = False
) -> Preview:
    """Count what the person may do *action* to."""
    counted = as_counted(action.name, selection)
    narrow = allowed_to(request.user, action.verb, selection)
    return preview(action, counted, narrow, is_quick=is_quick)


def _what_runs_again(action: Action, selection: Selection, seen: Preview) -> str:
    """Return what to say of jobs that have done their work, "" if there are none."""
    may_be = action.name == "requeue" and JobStatus.SUCCESSFUL in selection.statuses
    if not may_be or seen.total == 0:
        return ""
    if JobStatus.SUCCESSFUL in dict(seen.statuses):
        return _("Some of them were successful, and run once more.")
    if seen.statuses and seen.sample is None:
        return ""
    return _("Some of them may have been successful, and run once more.")


def _title(action: Action) -> str:
    if action.name == "export":
        return _("Export jobs")
    return _("%(action)s: are you sure?") % {"action": action.label}


class AskedChange(TypedDict):
    """The question of a page of confirmation, signed into its form.

    *total*, *more* and *dependants* are the numbers of its preview; *typed* is what was to be
    typed.
    """

    action: str
    user: str
    selection: StoredSelection
    total: int | None
    more: int | None
    dependants: int | None
    typed: str


def _token(
    request: HttpRequest, action: Action, selection: Selection, seen: Preview, typed: str
) -> str:
    """Return what the page was about, signed, for its form."""
    return _sign(
        {
            "action": action.name,
            "user": str(request.user.pk),
            "selection": selection.to_json(),
            "total": seen.total,
            "more": seen.more,
            "dependants": seen.dependants,
            "typed": typed,
        }
    )


def text_to_type(action: Action, selection: Selection, total: int | None) -> str:
    """Return what is to be typed before so many jobs are ended or deleted, "" if nothing is."""
    if total is not None:
        return str(total) if total > UNTYPED_JOBS else ""
    return str(selection.lookups.get("queue_name") or action.label)


def _what_came(token: AskedChange, now: Preview) -> str:
    """Return what to say if the change is about more than its page showed, "" if it is not.

    What cannot be counted is confirmed without a number, but not before that was tried.
    """
    numbers = [(token["total"], now.total), (token.get("dependants"), now.dependants)]
    if any(shown is None and found is not None for shown, found in numbers):
        return _("They are counted now: look again.")
    counted = [(shown, found) for shown, found in numbers if shown is not None]
    if any(found is not None and found > shown for shown, found in counted):
        return _("There are more now: look again.")
    if any(found is None for _shown, found in counted):
        return _("There may be more now: look again.")
    return ""


def _read_token(
    request: HttpRequest, action: Action, selection: Selection
) -> tuple[AskedChange, Selection] | None:
    """Return what the form's page was about, None if that was something else, or long ago."""
    try:
        token: AskedChange = _unsign(request.POST.get("preview", ""), FORM_SECONDS)
        seen = Selection.from_json(token["selection"])
        is_same = token["action"] == action.name and token["user"] == str(request.user.pk)
    except (signing.BadSignature, InvalidLookup, KeyError, TypeError):
        return None
    return (token, seen) if is_same and seen.lookups == selection.lookups else None


def _confirm(
    job_admin: PageAdmin, request: HttpRequest, action: Action, selection: Selection
) -> HttpResponseBase:
    """Do what was confirmed, or draw the page again if something is wrong with the form."""
    asked = _read_token(request, action, selection)
    if asked is None:
        messages.warning(request, _("This preview is too old. Here is a new one."))
        return HttpResponseRedirect(request.get_full_path())
    token, seen = asked
    form = _form(request, action, selection)
    if isinstance(form, EndingForm):
        form.ask_to_type(token.get("typed", ""))
    if not form.is_valid():
        return _ask(job_admin, request, action, selection)
    if isinstance(form, ExportForm):
        return _export(job_admin, request, seen, form)
    total, more = token["total"], token["more"]
    if isinstance(form, EndingForm) or total is None:
        now = _preview(request, action, seen)
        came = _what_came(token, now) if isinstance(form, EndingForm) else ""
        if came:
            messages.warning(request, came)
            return _ask(job_admin, request, action, selection)
        if total is None:
            total, more = now.total, now.more
    options = form.options()
    if total is not None and options.get("reset_attempts"):
        total = None if more is None else total + more
    if total == 0 and workflow_to_delete(action.name, seen) is None:
        messages.warning(request, _("There is no job that this can be done to."))
        return HttpResponseRedirect(back_address(job_admin, request))
    reason = form.cleaned_data["reason"]
    by = f"discarded by {request.user.get_username()}"
    options["note"] = f"{by}: {reason}" if reason else by
    change = create_change(action, seen, options, user=request.user, reason=reason, total=total)
    return _start(job_admin, request, change)


def _start(job_admin: PageAdmin, request: HttpRequest, change: BulkChange) -> HttpResponse:
    """Run a small change, or let a worker run a large one."""
    if change.total is None or change.total > INLINE_JOBS:
        enqueue_change(change)
        _record(job_admin, request, change, change.total)
        return HttpResponseRedirect(job_admin.url("pgjobs_job_bulk_progress", change.pk))
    is_deletion = change.verb == "delete"
    tasks = first_tasks(change, request.user, MAX_ENTRIES) if is_deletion else None
    try:
        changed, passed_over = run_change(change.pk)
    except DatabaseError:
        change.refresh_from_db()
        _record(job_admin, request, change, change.changed)
        text = _("It was interrupted, and can be continued here.")
        messages.error(request, text)
        return HttpResponseRedirect(job_admin.url("pgjobs_job_bulk_progress", change.pk))
    change.refresh_from_db()
    _record(job_admin, request, change, change.changed)
    record_jobs(request.user, change.verb, changed, reason=change.reason, tasks=tasks)
    level = messages.WARNING if change.error or not change.changed else messages.SUCCESS
    said = result_message(job_admin, change, request.user)
    if passed_over is not None:
        said = format_html("{} {}", said, example_of(passed_over))
    messages.add_message(request, level, said)
    return HttpResponseRedirect(back_address(job_admin, request))


def _record(
    job_admin: PageAdmin, request: HttpRequest, change: BulkChange, count: int | None
) -> None:
    record(
        request.user,
        change.verb,
        obj=change,
        count=count,
        selection=change.selection["lookups"],
        reason=change.reason,
        site=job_admin.admin_site,
    )
    tree = change.selection["lookups"].get("tree")
    if tree is not None:
        record_tree(request.user, change.verb, tree, count=count, reason=change.reason)


def _export(
    job_admin: PageAdmin, request: HttpRequest, selection: Selection, form: ExportForm
) -> HttpResponseBase:
    options = form.export_options()
    record(
        request.user,
        "export",
        target=_("masked values shown") if options["reveal"] else "",
        selection=selection.to_json()["lookups"],
        reason=form.cleaned_data["reason"],
        site=job_admin.admin_site,
    )
    return stream_jobs(request.user, selection, options)


def _form(request: HttpRequest, action: Action, selection: Selection) -> BulkForm:
    data = request.POST if request.method == "POST" else None
    form_class = FORMS.get(action.name, BulkForm)
    if issubclass(form_class, ExportForm):
        return form_class(data, may_reveal=may(request.user, Verb.REVEAL))
    if issubclass(form_class, RequeueForm):
        return form_class(data, has_waiting=JobStatus.READY in selection.statuses)
    return form_class(data)


def _sign(value: AskedChange | StoredSelection) -> str:
    return signing.dumps(value, salt=SALT, compress=True)


def _unsign(text: str, max_age: int) -> Any:
    return signing.loads(text, salt=SALT, max_age=max_age)
