"""What the page that asks before a bulk change says if it is about the jobs of a tree."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_pgjobs.admin.breadcrumbs import batch_steps
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.bulk.actions import Action
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.bulk.trees import tree_to_retry, workflow_to_delete
from django_pgjobs.models import Batch
from django_pgjobs.permissions import Verb, whole_workflows
from django_pgjobs.status import JobStatus


class TreeTexts(NamedTuple):
    """Title and breadcrumbs of the page, and what else happens, "" if nothing does."""

    title: str
    steps: list[dict[str, str]]
    lead: str


def texts_of_tree(
    model_admin: PageAdmin, request: HttpRequest, action: Action, selection: Selection
) -> TreeTexts | None:
    """Return the texts about the tree of a selection, None if it is about other jobs."""
    tree_id = selection.lookups.get("tree")
    if tree_id is None:
        return None
    batch = Batch.objects.select_related("root").filter(pk=tree_id).first()
    if batch is not None and not whole_workflows(request.user, Verb.VIEW, [batch.root_id]):
        batch = None
    name = str(batch) if batch is not None else f"#{tree_id}"
    owners: list[Any] = [batch.root] if batch is not None and batch.parent_id else []
    title = _("%(action)s: are you sure?")
    if action.name == "delete":
        title = _("Delete %(batch)s: are you sure?")
    elif tree_to_retry(action.name, selection) is not None:
        title = _("Retry the failed part of %(batch)s: are you sure?")
        if JobStatus.CANCELLED in selection.statuses:
            title = _("Retry what failed or was cancelled in %(batch)s: are you sure?")
    return TreeTexts(
        title % {"batch": name, "action": action.label},
        batch_steps(model_admin, *owners, *([batch] if batch is not None else [])),
        _lead(action, selection, batch) % {"batch": name},
    )


def _lead(action: Action, selection: Selection, batch: Batch | None) -> str:
    """Return what happens beside the change of the jobs, "" if nothing does."""
    if workflow_to_delete(action.name, selection) is not None:
        return _("The workflow %(batch)s goes with its jobs, and all batches of it.")
    if tree_to_retry(action.name, selection) is None:
        return ""
    text = _(
        "%(batch)s opens again, with all batches above it: what follows these jobs runs with "
        "their new results, what follows whole batches runs again, and the jobs that are enqueued "
        "at the end come once more."
    )
    is_cancelled = batch is not None and batch.cancel_requested_at is not None
    if is_cancelled or JobStatus.CANCELLED in selection.statuses:
        text += " " + _("A cancel of it is taken back: what waits runs, too.")
    return text
