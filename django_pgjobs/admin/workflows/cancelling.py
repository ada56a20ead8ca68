"""Cancelling the rest of a tree: the page that asks first, and doing it."""

from __future__ import annotations

from typing import Any, TypedDict

from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_pgjobs.admin import audit
from django_pgjobs.admin.breadcrumbs import batch_steps
from django_pgjobs.admin.bulk.asking import FORM_SECONDS, text_to_type
from django_pgjobs.admin.bulk.forms import EndingForm
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.workflows.batch_page import draw_missing, find_batch, is_ending
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.dependants import MAX_DEPENDANTS
from django_pgjobs.bulk.preview import MAX_COUNTED, MAX_SKIPPED, Preview, preview
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.bulk.walk import allowed_to
from django_pgjobs.permissions import Verb, whole_workflows

SALT = "django_pgjobs.workflows"
# The action of `bulk` for which its jobs are counted.
ACTION = ACTIONS["cancel"]


class AskedCancel(TypedDict):
    """The question of a page, signed into its form."""

    user: str
    batch: int
    total: int | None
    typed: str


def draw_cancel(model_admin: PageAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Ask, with a preview, or do what was confirmed."""
    batch = find_batch(request, object_id)
    if not whole_workflows(request.user, Verb.OPERATE, [batch.root_id] if batch else [0]):
        raise PermissionDenied
    if batch is None:
        return draw_missing(model_admin, request, object_id)
    here = HttpResponseRedirect(model_admin.url("pgjobs_batch_change", batch.pk))
    if is_ending(batch):
        messages.warning(request, _("Nothing was done: the workflow changed meanwhile."))
        return here
    if request.method != "POST":
        return _ask(model_admin, request, batch)
    token = _read_token(request, batch)
    if token is None:
        messages.warning(request, _("This preview is too old. Here is a new one."))
        return HttpResponseRedirect(request.get_full_path())
    form = EndingForm(request.POST)
    form.ask_to_type(token["typed"])
    if not form.is_valid():
        return _ask(model_admin, request, batch, form)
    _cancel(model_admin, request, batch, token["total"], form.cleaned_data["reason"])
    return here


def _cancel(
    model_admin: PageAdmin, request: HttpRequest, batch: Any, total: int | None, reason: str
) -> None:
    if not batch.cancel():
        messages.warning(request, _("Nothing was done: the workflow changed meanwhile."))
        return
    audit.record(
        request.user,
        ACTION.name,
        obj=batch,
        count=total,
        selection={"tree": batch.pk},
        reason=reason,
        site=model_admin.admin_site,
    )
    messages.success(request, _("The rest is being cancelled."))


def _ask(
    model_admin: PageAdmin, request: HttpRequest, batch: Any, form: EndingForm | None = None
) -> HttpResponse:
    """Draw the page of confirmation, as that of a bulk change: its counts have their own times."""
    selection = Selection({"tree": batch.pk}).pinned()
    seen = preview(ACTION, selection, allowed_to(request.user, ACTION.verb, selection))
    typed = text_to_type(ACTION, selection, seen.total)
    if form is None:
        form = EndingForm()
        form.ask_to_type(typed)
    context = {
        "title": _("Cancel the rest of %(batch)s: are you sure?") % {"batch": batch},
        "steps": batch_steps(model_admin, *([batch.root] if batch.parent_id else []), batch),
        "lead": _(
            "Nothing of it begins any more: waiting jobs end as cancelled, those that run are "
            "asked to end, and what follows them is not made. Workers do that, 1,000 jobs at a "
            "time."
        ),
        "action": {"name": ACTION.name, "label": _("Cancel the rest")},
        "form": form,
        "preview": seen,
        "max_counted": MAX_COUNTED,
        "max_dependants": MAX_DEPENDANTS,
        "max_skipped": MAX_SKIPPED,
        "token": _make_token(request, batch, seen, typed),
        "back": model_admin.url("pgjobs_batch_change", batch.pk),
        "can_run": True,
    }
    return model_admin.render_page(request, "bulk_confirm.html", context)


def _make_token(request: HttpRequest, batch: Any, seen: Preview, typed: str) -> str:
    token: AskedCancel = {
        "user": str(request.user.pk),
        "batch": batch.pk,
        "total": seen.total,
        "typed": typed,
    }
    return signing.dumps(token, salt=SALT, compress=True)


def _read_token(request: HttpRequest, batch: Any) -> AskedCancel | None:
    """Return what the form's page was about, None if that was something else, or long ago."""
    try:
        token: AskedCancel = signing.loads(
            request.POST.get("preview", ""), salt=SALT, max_age=FORM_SECONDS
        )
    except signing.BadSignature:
        return None
    is_same = (token["user"], token["batch"]) == (str(request.user.pk), batch.pk)
    return token if is_same else None
