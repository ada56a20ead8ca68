"""Cancelling the rest of a tree, and deleting one: the pages that ask first, and doing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgjobs.admin import audit
from django_pgjobs.admin.breadcrumbs import batch_steps
from django_pgjobs.admin.bulk.asking import FORM_SECONDS, text_to_type
from django_pgjobs.admin.bulk.forms import EndingForm
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.workflows.batch_page import draw_missing, find_batch
from django_pgjobs.bulk import ACTIONS, Selection
from django_pgjobs.bulk.dependants import MAX_DEPENDANTS
from django_pgjobs.bulk.preview import MAX_COUNTED, MAX_SKIPPED, Preview, preview
from django_pgjobs.bulk.walk import allowed_to
from django_pgjobs.permissions import Verb, whole_workflows

SALT = "django_pgjobs.workflows"


@dataclass(frozen=True)
class TreeEnding:
    """Something that ends a tree; *verb* is the action of `bulk` for which its jobs are counted."""

    verb: str
    title: Any
    lead: Any
    label: Any
    permission: Verb
    suits: Callable[[Any], bool]
    done: Any


CANCEL = TreeEnding(
    "cancel",
    gettext_lazy("Cancel the rest of %(batch)s: are you sure?"),
    gettext_lazy(
        "Nothing of it begins any more: waiting jobs end as cancelled, those that run are asked "
        "to end, and what follows them is not made. Workers do that, 1,000 jobs at a time."
    ),
    gettext_lazy("Cancel the rest"),
    Verb.OPERATE,
    lambda batch: batch.tree_completed_at is None and batch.cancel_requested_at is None,
    gettext_lazy("The rest is being cancelled."),
)


class AskedEnding(TypedDict):
    """What a page that asked was about, signed into its form."""

    verb: str
    user: str
    batch: int
    total: int | None
    typed: str


def draw_ending(
    model_admin: PageAdmin, request: HttpRequest, object_id: str, ending: TreeEnding
) -> HttpResponse:
    """Ask, with a preview, or do what was confirmed."""
    batch = find_batch(request, object_id)
    if not whole_workflows(request.user, ending.permission, [batch.root_id] if batch else [0]):
        raise PermissionDenied
    if batch is None:
        return draw_missing(model_admin, request, object_id)
    here = HttpResponseRedirect(model_admin.url("pgjobs_batch_change", batch.pk))
    if not ending.suits(batch):
        messages.warning(request, _("Nothing was done: the workflow changed meanwhile."))
        return here
    if request.method != "POST":
        return _ask(model_admin, request, batch, ending)
    token = _read_token(request, batch, ending)
    if token is None:
        messages.warning(request, _("This preview is too old. Here is a new one."))
        return HttpResponseRedirect(request.get_full_path())
    form = EndingForm(request.POST)
    form.ask_to_type(token["typed"])
    if not form.is_valid():
        return _ask(model_admin, request, batch, ending, form)
    _do(model_admin, request, batch, ending, token, form.cleaned_data["reason"])
    return here


def _do(
    model_admin: PageAdmin,
    request: HttpRequest,
    batch: Any,
    ending: TreeEnding,
    token: AskedEnding,
    reason: str,
) -> None:
    if not batch.cancel():
        messages.warning(request, _("Nothing was done: the workflow changed meanwhile."))
        return
    audit.record(
        request.user,
        ending.verb,
        obj=batch,
        count=token["total"],
        selection={"tree": batch.pk},
        reason=reason,
        site=model_admin.admin_site,
    )
    messages.success(request, ending.done)


def _ask(
    model_admin: PageAdmin,
    request: HttpRequest,
    batch: Any,
    ending: TreeEnding,
    form: EndingForm | None = None,
) -> HttpResponse:
    """Draw the page of confirmation, as that of a bulk change: its counts have their own times."""
    action = ACTIONS[ending.verb]
    selection = Selection({"tree": batch.pk}).pinned()
    seen = preview(action, selection, allowed_to(request.user, action.verb, selection))
    typed = text_to_type(action, selection, seen.total)
    if form is None:
        form = EndingForm()
        form.ask_to_type(typed)
    context = {
        "title": ending.title % {"batch": batch},
        "steps": [
            *batch_steps(model_admin, *([batch.root] if batch.parent_id else []), batch),
        ],
        "lead": ending.lead,
        "action": {"name": ending.verb, "label": ending.label},
        "form": form,
        "preview": seen,
        "max_counted": MAX_COUNTED,
        "max_dependants": MAX_DEPENDANTS,
        "max_skipped": MAX_SKIPPED,
        "token": _make_token(request, batch, ending, seen, typed),
        "back": model_admin.url("pgjobs_batch_change", batch.pk),
        "can_run": True,
    }
    return model_admin.render_page(request, "bulk_confirm.html", context)


def _make_token(
    request: HttpRequest, batch: Any, ending: TreeEnding, seen: Preview, typed: str
) -> str:
    token: AskedEnding = {
        "verb": ending.verb,
        "user": str(request.user.pk),
        "batch": batch.pk,
        "total": seen.total,
        "typed": typed,
    }
    return signing.dumps(token, salt=SALT, compress=True)


def _read_token(request: HttpRequest, batch: Any, ending: TreeEnding) -> AskedEnding | None:
    """Return what the form's page was about, None if that was something else, or long ago."""
    try:
        token: AskedEnding = signing.loads(
            request.POST.get("preview", ""), salt=SALT, max_age=FORM_SECONDS
        )
    except signing.BadSignature:
        return None
    asked = (ending.verb, str(request.user.pk), batch.pk)
    return token if (token["verb"], token["user"], token["batch"]) == asked else None
