"""Bulk changes that act on a tree as a whole: its deletion, and a retry of its failed part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.utils.translation import gettext as _

from django_pgjobs.bulk.actions import Action
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Batch, Job
from django_pgjobs.models.batch_states import is_of_whole
from django_pgjobs.permissions import is_narrowed, may, whole_workflows
from django_pgjobs.queries import batch_care
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.queries.workflow_pages import summarise_trees
from django_pgjobs.workflows.retrying import find_refusal

# Batches that one statement deletes.
PAGE_BATCHES = 1_000


def workflow_to_delete(verb: str, selection: Selection) -> int | None:
    """Return the root of the workflow that a change deletes, None for any other change."""
    is_whole = verb == "delete" and set(selection.lookups) == {"tree"}
    return selection.lookups["tree"] if is_whole else None


def tree_to_retry(verb: str, selection: Selection) -> int | None:
    """Return the batch that a change retries as `Batch.retry` does, None for any other change.

    One of some jobs of a tree is that of any jobs: a cancel is not taken back.
    """
    is_whole = verb == "requeue" and set(selection.lookups) == {"tree", "status__in"}
    return selection.lookups["tree"] if is_whole else None


def may_do(user: Any, action: Action, selection: Selection) -> bool:
    """May *user* do this to the tree, if it is done to a tree as a whole?"""
    tree_id = workflow_to_delete(action.name, selection) or tree_to_retry(action.name, selection)
    if tree_id is None:
        return True
    if not is_narrowed(user, action.verb):
        return may(user, action.verb)
    roots = Batch.objects.using(job_database()).filter(pk=tree_id).values_list("root_id", flat=True)
    return bool(whole_workflows(user, action.verb, roots or [tree_id]))


def as_counted(verb: str, selection: Selection) -> Selection:
    """Return the selection of the jobs that a change requeues itself.

    What follows whole batches runs again when they are complete, if anything of them does.
    """
    if tree_to_retry(verb, selection) is None:
        return selection
    others = selection.conditions() & ~is_of_whole()
    if not Job.objects.using(job_database()).filter(others).exists():
        return selection
    return replace(selection, lookups={**selection.lookups, "follows_failure": False})


def is_small_tree(selection: Selection, max_jobs: int) -> bool:
    """Is it about the jobs of a tree, and are these so few that its index is the way to them?"""
    tree = selection.lookups.get("tree")
    if tree is None:
        return False
    with job_cursor() as cursor:
        found = summarise_trees(cursor, [tree]).get(tree)
    return found is not None and not found.is_cut and found.jobs <= max_jobs


def begin_deletion(root_id: int) -> str:
    """Let none of the jobs of a workflow be requeued any more; return why not, "" if it is so.

    An open workflow needs its jobs.
    """
    with job_cursor() as cursor:
        if batch_care.begin_deletion(cursor, [root_id]):
            return ""
    if not Batch.objects.using(job_database()).filter(pk=root_id).exists():
        return ""
    return _("Stopped: the workflow is not complete. Cancel it first, and wait.")


def begin_retry(batch_id: int) -> str:
    """Keep a tree from being deleted until the transaction ends; return why it must not be retried,
    "" if it may.
    """
    with job_cursor() as cursor:
        refused = find_refusal(cursor, batch_id)
    if refused is None:
        return ""
    if refused.cancelled_id is None:
        return _("Stopped: the workflow is being deleted.")
    return _("Stopped: batch %d above it is cancelled. Retry that one.") % refused.cancelled_id


def delete_batches(root_id: int) -> None:
    """Delete the batches of a workflow, in the open transaction, but for those that have jobs."""
    with job_cursor() as cursor:
        while batch_care.delete_batches(cursor, [root_id], max_batches=PAGE_BATCHES):
            pass
