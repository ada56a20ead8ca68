"""Deleting a workflow, with all its batches and jobs."""

from __future__ import annotations

from django.db import connections, transaction

from django_pgjobs.exceptions import BatchOpen
from django_pgjobs.queries import batch_care
from django_pgjobs.queries.database import job_database
from django_pgjobs.workflows.blocks import AnyBatch, row_of, rows

PAGE = 1_000


def delete(batch: AnyBatch) -> tuple[int, dict[str, int]]:
    """Delete a complete tree, a page in a transaction; see `Batch.delete`."""
    _refuse(batch)
    deleted = {"pgjobs.Job": 0, "pgjobs.Batch": 0}
    while page := _delete_page(batch.pk):
        deleted[page[0]] += page[1]
    if rows().filter(pk=batch.pk).exists():
        raise BatchOpen(
            f"jobs of workflow {batch.pk} are locked, were requeued, or some wait that are to "
            "learn of their end: they are left. Delete it again."
        )
    return sum(deleted.values()), deleted


def _refuse(batch: AnyBatch) -> None:
    found = row_of(batch)
    if found.parent_id is not None:
        raise ValueError(
            f"expected a workflow to be deleted, got a batch of it. Delete batch {found.root_id}."
        )
    if found.tree_completed_at is None:
        how = "cancel() it first" if found.cancel_requested_at is None else "wait() for its end"
        raise BatchOpen(f"workflow {batch.pk} is not complete: {how}.")


def _delete_page(root_id: int) -> tuple[str, int] | None:
    """Delete some jobs, or some batches if there are no jobs; return what, None if nothing."""
    database = job_database()
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        if not batch_care.begin_deletion(cursor, [root_id]):
            return None
        if jobs := batch_care.delete_tree_jobs(cursor, [root_id], max_jobs=PAGE):
            return "pgjobs.Job", len(jobs)
        if gone := batch_care.delete_batches(cursor, [root_id], max_batches=PAGE):
            return "pgjobs.Batch", len(gone)
    return None
