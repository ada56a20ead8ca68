"""Sealing a batch that is open by hand: who forgot it need not open a shell."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_pgjobs.admin import audit
from django_pgjobs.admin.bulk.forms import BulkForm
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.workflows.batch_page import draw_missing, find_batch, is_open_by_hand
from django_pgjobs.permissions import Verb, whole_workflows


def seal(model_admin: PageAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Say that no more jobs come to a batch; its page has asked."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    batch = find_batch(request, object_id)
    if not whole_workflows(request.user, Verb.OPERATE, [batch.root_id] if batch else [0]):
        raise PermissionDenied
    if batch is None:
        return draw_missing(model_admin, request, object_id)
    form = BulkForm(request.POST)
    if not form.is_valid():
        messages.error(request, " ".join(map(str, form.errors["reason"])))
    elif not is_open_by_hand(batch):
        messages.warning(request, _("Nothing was done: the workflow changed meanwhile."))
    else:
        _seal(model_admin, request, batch, form.cleaned_data["reason"])
    return HttpResponseRedirect(model_admin.url("pgjobs_batch_change", batch.pk))


def _seal(model_admin: PageAdmin, request: HttpRequest, batch: Any, reason: str) -> None:
    batch.seal()
    audit.record(
        request.user,
        "seal",
        obj=batch,
        selection={"batch": batch.pk},
        reason=reason,
        site=model_admin.admin_site,
    )
    messages.success(request, _("No more jobs come: it is complete when its jobs and parts are."))
