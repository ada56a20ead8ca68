"""The page of a batch: what it came to, why it does not end, and what is below it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_pgjobs.admin.addresses import in_quotes
from django_pgjobs.admin.breadcrumbs import batch_steps
from django_pgjobs.admin.bulk.asking import bulk_address
from django_pgjobs.admin.bulk.forms import BulkForm
from django_pgjobs.admin.job_page.json_html import json_html, printable
from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.admin.workflows.drawing import (
    BatchJobLinks,
    ProgressBar,
    bar_of,
    job_links,
)
from django_pgjobs.admin.workflows.failed_jobs import failed_jobs
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Batch
from django_pgjobs.models.batch_states import owners_first, with_states
from django_pgjobs.permissions import Verb, require, visible_ids, whole_workflows
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.queries.workflow_pages import (
    MAX_CHILDREN,
    MAX_SHOWN,
    MAX_SUMMED,
    TreeRow,
    TreeSum,
    list_tree,
    summarise_trees,
)
from django_pgjobs.status import JobStatus
from django_pgjobs.values.job_ids import parse_job_id
from django_pgjobs.values.moments import aware
from django_pgjobs.values.payload import LATEST

BEHIND = "behind"
MAX_CALLBACKS = 20
A_DAY = timedelta(days=1)
# Deeper batches are not indented further, and say their level.
MAX_DEPTH = 8
RETRIED = {"failed": [JobStatus.FAILED], "all": [JobStatus.FAILED, JobStatus.CANCELLED]}


class TreeLine(NamedTuple):
    """A batch of the tree, drawn at one of MAX_DEPTH indentations."""

    row: TreeRow
    batch: Any
    url: str
    bar: ProgressBar
    jobs: BatchJobLinks
    depth: int


class More(NamedTuple):
    """The end of what is shown right below a batch, where there is more: how much, and a link."""

    batch: Any
    url: str
    number: int
    depth: int


class TreeButton(NamedTuple):
    """A button that leads to a page which asks before it does something to the tree."""

    label: str
    url: str


def find_batch(request: HttpRequest, object_id: str) -> Any:
    """Return the batch of an address with its *state*, None if the person may see none there.

    Raise PermissionDenied for a person who may see no job at all.
    """
    require(request, Verb.VIEW)
    batch_id = parse_job_id(object_id)
    if batch_id is None:
        return None
    batch = with_states(Batch.objects.select_related("root")).filter(pk=batch_id).first()
    if batch is None or not whole_workflows(request.user, Verb.VIEW, [batch.root_id]):
        return None
    return batch


def draw_missing(model_admin: PageAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Return the page about a batch that is not there, with status 404."""
    context = {
        "title": _("This batch does not exist"),
        "steps": batch_steps(model_admin),
        "object_id": printable(object_id)[:100],
    }
    response = model_admin.render_page(request, "batch_missing.html", context)
    response.status_code = 404
    return response


def draw_batch(model_admin: PageAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
    """Return the page of a batch, or one with status 404."""
    batch = find_batch(request, object_id)
    if batch is None:
        return draw_missing(model_admin, request, object_id)
    behind = parse_job_id(request.GET.get(BEHIND, "")) or 0
    with job_cursor() as cursor:
        rows = list_tree(cursor, batch.pk, behind=behind)
        total = summarise_trees(cursor, [batch.pk]).get(batch.pk)
    if total is None:  # deleted a moment ago
        return draw_missing(model_admin, request, object_id)
    is_ended = batch.tree_completed_at is not None
    context = {
        "title": str(batch),
        "steps": batch_steps(model_admin, *([batch.root] if batch.parent_id else [])),
        "batch": batch,
        "total": total,
        "bar": bar_of(total),
        "jobs": job_links(model_admin, batch.pk, of_tree=True),
        "failed": failed_jobs(model_admin, total),
        "max_summed": MAX_SUMMED,
        "lines": tree_lines(model_admin, rows[:MAX_SHOWN]),
        "shown": min(len(rows), MAX_SHOWN),
        "is_cut": len(rows) > MAX_SHOWN,
        "max_depth": MAX_DEPTH,
        "behind": behind,
        "is_ended": is_ended,
        "reasons": reasons_of(batch),
        "buttons": buttons_for(model_admin, request, batch, total),
        "seal_url": seal_url(model_admin, request, batch),
        "seal_form": BulkForm(auto_id="id_seal_%s"),
        "callbacks": callbacks_of(model_admin, batch),
        "metadata": shown_metadata(batch),
        "opener_url": opener_url(model_admin, request, batch),
        "parent_url": model_admin.url("pgjobs_batch_change", batch.parent_id or batch.pk),
        "history_url": model_admin.url("pgjobs_batch_history", batch.pk),
        "pgjobs_live": not is_ended,
    }
    return model_admin.render_page(request, "batch.html", context)


def reasons_of(batch: Batch) -> list[tuple[str, tuple[int, ...]]]:
    """Return why a batch does not end or was not run: texts, and batches as links behind each."""
    return [
        # The text ends with the same numbers.
        (f"{each.text.rpartition(': ')[0]}:" if each.refs else each.text, each.refs)
        for each in batch.explain().reasons
        if each.code != "complete"
    ]


def tree_lines(model_admin: PageAdmin, rows: list[TreeRow]) -> list[TreeLine | More]:
    """Return what is drawn of a tree: owners right before what is below them."""
    lines: list[TreeLine | More] = []
    drawn: dict[int | None, Any] = {}
    below: dict[int | None, list[TreeRow]] = {}
    for row, batch in owners_first(rows):
        if drawn and row.parent_id not in drawn:
            continue
        siblings = below.setdefault(row.parent_id, [])
        if len(siblings) == MAX_CHILDREN:
            lines.append(more_below(model_admin, drawn[row.parent_id], siblings[-1]))
            continue
        siblings.append(row)
        drawn[row.id] = batch
        url = model_admin.url("pgjobs_batch_change", row.id)
        links = job_links(model_admin, row.id)
        lines.append(TreeLine(row, batch, url, bar_of(row), links, min(row.depth, MAX_DEPTH)))
    return lines


def more_below(model_admin: PageAdmin, batch: Any, last: TreeRow) -> More:
    """Return the end of what is shown right below a batch; *last* is the last of it."""
    rest = Batch.objects.filter(parent_id=batch.pk, pk__gt=last.id).order_by("pk")
    number = rest.values("pk")[: MAX_SUMMED + 1].count()
    url = f"{model_admin.url('pgjobs_batch_change', batch.pk)}?{BEHIND}={last.id}"
    return More(batch, url, number, min(last.depth, MAX_DEPTH))


def buttons_for(
    model_admin: PageAdmin, request: HttpRequest, batch: Any, total: TreeSum
) -> list[TreeButton]:
    """Return what the person may do to the batch and all below it."""
    found = []
    is_ended = batch.tree_completed_at is not None
    is_kept = batch.root.deleting_at is None
    if is_kept and whole_workflows(request.user, Verb.OPERATE, [batch.root_id]):
        if total.failed:
            url = retry_address(model_admin, request, batch, "failed")
            found.append(TreeButton(_("Retry failed part…"), url))
        if total.cancelled:
            url = retry_address(model_admin, request, batch, "all")
            found.append(TreeButton(_("Retry failed and cancelled…"), url))
        if not is_ending(batch):
            url = model_admin.url("pgjobs_batch_cancel", batch.pk)
            found.append(TreeButton(_("Cancel the rest…"), url))
    may_delete = whole_workflows(request.user, Verb.DELETE, [batch.root_id])
    if may_delete and is_ended and batch.parent_id is None:
        listed = model_admin.url("pgjobs_batch_changelist")
        url = bulk_address(model_admin, "delete", Selection({"tree": batch.pk}), back=listed)
        found.append(TreeButton(_("Delete…"), url))
    return found


def is_ending(batch: Any) -> bool:
    """Is it being cancelled, or complete with all below it?"""
    return batch.cancel_requested_at is not None or batch.tree_completed_at is not None


def is_open_by_hand(batch: Any) -> bool:
    """Does it wait for somebody to say that no more jobs come?"""
    return batch.sealed_at is None and batch.follows is None and not is_ending(batch)


def seal_url(model_admin: PageAdmin, request: HttpRequest, batch: Any) -> str:
    """Return where the batch is sealed, "" if there is nothing to seal for this person."""
    may_seal = is_open_by_hand(batch) and whole_workflows(
        request.user, Verb.OPERATE, [batch.root_id]
    )
    return model_admin.url("pgjobs_batch_seal", batch.pk) if may_seal else ""


def retry_address(model_admin: PageAdmin, request: HttpRequest, batch: Batch, which: str) -> str:
    """Return the page that asks whether to retry jobs of a tree."""
    statuses = [status.value for status in RETRIED[which]]
    selection = Selection({"tree": batch.pk, "status__in": statuses})
    return bulk_address(model_admin, "requeue", selection, back=request.path)


def callbacks_of(model_admin: PageAdmin, batch: Any) -> list[tuple[str, str, str]]:
    """Return what is enqueued at the end, whatever the row holds: event, task, and the jobs of it.

    There is no address of jobs as long as there can be none.
    """
    given = batch.callbacks if isinstance(batch.callbacks, list) else []
    labels = {
        "success": _("if all succeeds"),
        "failure": _("if something fails"),
        "complete": _("in any case"),
    }
    tasks = [
        (labels.get(str(each.get("event")), "?"), printable(str(each.get("task_path", "?"))[:200]))
        for each in given[:MAX_CALLBACKS]
        if isinstance(each, dict)
    ]
    return [(label, task, callback_url(model_admin, batch, task)) for label, task in tasks]


def callback_url(model_admin: PageAdmin, batch: Any, task: str) -> str:
    """Return where the jobs of a callback are listed: they have the batch as first argument.

    They were enqueued when the tree was complete, so the list begins to look there.
    """
    if not batch.completions:
        return ""
    query = {"q": f"task:{in_quotes(task)} args.0:{batch.pk}"}
    ended = batch.tree_completed_at and aware(batch.tree_completed_at)
    if ended and ended < LATEST - A_DAY:
        day = timezone.localtime(ended + A_DAY).date()
        query["enqueued_at__range__lte_0"] = day.isoformat()
    return f"{model_admin.url('pgjobs_job_changelist')}?{urlencode(query)}"


def shown_metadata(batch: Batch) -> SafeString | None:
    """Return what the project keeps with the batch, masked; None if that is nothing."""
    return json_html(batch.metadata) if batch.metadata != {} else None


def opener_url(model_admin: PageAdmin, request: HttpRequest, batch: Any) -> str:
    """Return the page of the job that opened the batch, "" if there is none for this person."""
    if not batch.opener_id or not visible_ids(request.user, [batch.opener_id]):
        return ""
    return model_admin.url("pgjobs_job_change", batch.opener_id)
