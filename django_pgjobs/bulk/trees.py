"""Bulk changes of the jobs of a tree; one that deletes all jobs of a workflow deletes that, too."""

from __future__ import annotations

from django.db import connections
from django.utils.translation import gettext as _

from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Batch
from django_pgjobs.queries import batch_care, batch_retries
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.workflow_pages import summarise_trees

# Batches that one statement deletes.
PAGE_BATCHES = 1_000


def workflow_to_delete(verb: str, selection: Selection) -> int | None:
    """Return the root of the workflow that a change deletes, None for any other change."""
    is_whole = verb == "delete" and set(selection.lookups) == {"tree"}
    return selection.lookups["tree"] if is_whole else None


def is_small_tree(selection: Selection, max_jobs: int) -> bool:
    """Is it about the jobs of a tree, and are these so few that its index is the way to them?"""
    tree = selection.lookups.get("tree")
    if tree is None:
        return False
    with connections[job_database()].cursor() as cursor:
        found = summarise_trees(cursor, [tree]).get(tree)
    return found is not None and not found.is_cut and found.jobs <= max_jobs


def begin_deletion(root_id: int) -> str:
    """Let none of the jobs of a workflow be requeued any more; return why not, "" if it is so.

    An open workflow needs its jobs.
    """
    with connections[job_database()].cursor() as cursor:
        if batch_care.begin_deletion(cursor, [root_id]):
            return ""
    if not Batch.objects.using(job_database()).filter(pk=root_id).exists():
        return ""
    return _("Stopped: the workflow is not complete. Cancel it first, and wait.")


def uncancel(batch_id: int) -> str:
    """Let a tree begin jobs again, in the open transaction; return why that cannot be, or ""."""
    with connections[job_database()].cursor() as cursor:
        owner_id = batch_retries.find_cancelled_owner(cursor, batch_id)
        if owner_id is None:
            batch_retries.uncancel_batches(cursor, batch_id)
            return ""
    return _("Stopped: batch %d above it is cancelled. Retry that one.") % owner_id


def delete_batches(root_id: int) -> None:
    """Delete the batches of a workflow, in the open transaction, but for those that have jobs."""
    with connections[job_database()].cursor() as cursor:
        while batch_care.delete_batches(cursor, [root_id], max_batches=PAGE_BATCHES):
            pass
