"""Running the failed part of a tree again, or none of the rest."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connections, transaction

from django_pgjobs.exceptions import JobError
from django_pgjobs.queries import batch_retries, batches, jobs, notifications
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import JobStatus
from django_pgjobs.workflows.blocks import AnyBatch, is_of_caller, unknown

PAGE = 1_000


def retry(batch: AnyBatch, *, cancelled: bool) -> int:
    """Requeue the failed jobs below a batch, with *cancelled* those as well; return how many.

    Those that somebody else has locked are left out.
    """
    statuses = [JobStatus.FAILED.value, *([JobStatus.CANCELLED.value] if cancelled else [])]
    database = job_database()
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        hold(cursor, batch.pk)
        refuse_below_cancelled(cursor, batch.pk)
        count, touched = _requeue(cursor, batch.pk, statuses, of_wholes=False)
        is_open = cancelled or count > 0
        if is_open:
            touched |= set(batch_retries.uncancel_batches(cursor, batch.pk))
        # Counted when the jobs are requeued: before that nothing of them is unfinished.
        batches.open_again(cursor, touched)
        # What is open again lets the jobs that follow it run again; the others are left.
        wholes, touched = _requeue(
            cursor, batch.pk, statuses, of_wholes=True, despite_failures=count == 0
        )
        if wholes and not is_open:
            touched |= set(batch_retries.uncancel_batches(cursor, batch.pk))
        batches.open_again(cursor, touched)
    return count + wholes


def hold(cursor: Cursor, batch_id: int) -> None:
    """Keep the tree of a batch from being deleted; raise JobError if it is being deleted."""
    held = batch_retries.hold_tree(cursor, batch_id)
    if held is None:
        raise unknown(batch_id)
    root_id, is_deleting = held
    if is_deleting:
        raise JobError(f"workflow {root_id} is being deleted: nothing of it runs again.")


def refuse_below_cancelled(cursor: Cursor, batch_id: int) -> None:
    """Raise JobError if a batch above is cancelled: its cancel would end what runs again."""
    owner_id = batch_retries.find_cancelled_owner(cursor, batch_id)
    if owner_id is not None:
        raise JobError(
            f"batch {batch_id} cannot be run again: batch {owner_id} above it is cancelled. "
            "Retry that one, with cancelled=True."
        )


def _requeue(
    cursor: Cursor,
    batch_id: int,
    statuses: Sequence[str],
    *,
    of_wholes: bool,
    despite_failures: bool = False,
) -> tuple[int, set[int]]:
    """Requeue jobs page by page; return how many, and their batches."""
    count, touched, queues = 0, set[int](), set[str]()
    behind = batch_retries.BEGIN
    while True:
        page = batch_retries.list_unsuccessful(
            cursor,
            batch_id,
            list(statuses),
            of_wholes=of_wholes,
            despite_failures=despite_failures,
            behind=behind,
            max_jobs=PAGE,
        )
        if page:
            ids = [job_id for _, job_id in page]
            requeued = jobs.requeue_jobs(cursor, ids, run_after=None, delay=None)
            names = [row.queue_name for row in requeued if row.queue_name is not None]
            count += len(names)
            queues.update(names)
            touched.update(owner for owner, _ in page)
        if len(page) < PAGE:
            break
        behind = page[-1]
    notifications.notify_workers(cursor, list(queues))
    return count, touched


def cancel(batch: AnyBatch) -> bool:
    """Cancel a batch and all below it; return False if there is nothing to cancel any more."""
    database = job_database()
    is_left = is_of_caller(connections[database])
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        is_news = batches.cancel_batch(cursor, batch.pk)
        if is_news is None:
            raise unknown(batch.pk)
        if is_news and (is_left or batches.is_left(cursor, [batch.pk])):
            notifications.notify_of_batches(cursor)
    return is_news
