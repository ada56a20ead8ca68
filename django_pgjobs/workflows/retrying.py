"""Running the failed part of a tree again, or none of the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from django.db import connections, transaction

from django_pgjobs.exceptions import JobError
from django_pgjobs.queries import batch_retries, batches, jobs, notifications
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import JobStatus
from django_pgjobs.workflows.blocks import AnyBatch, id_of, is_of_caller, unknown

PAGE = 1_000


# Gives the jobs of a page new attempts, at the time that somebody has chosen.
Requeue = Callable[[list[int]], list[jobs.RequeuedJob]]


class RefusedRetry(NamedTuple):
    """Why nothing of a tree may run again: what `Batch.retry` raises.

    *cancelled_id* is the batch above it that is cancelled; None: the tree is gone, or is to be.
    """

    error: JobError
    cancelled_id: int | None = None


class RequeuedTree(NamedTuple):
    """The *ids* of jobs that were requeued, and *touched*, the batches of these.

    *conflicts* are jobs that were not, each with the twin that has its unique key.
    """

    ids: list[int]
    conflicts: list[tuple[int, int | None]]
    touched: set[int]


def retry(batch: AnyBatch, *, cancelled: bool) -> int:
    """Requeue the failed jobs below a batch, with *cancelled* those as well; return how many.

    Those that somebody else has locked are left out.
    """
    statuses = [JobStatus.FAILED.value, *([JobStatus.CANCELLED.value] if cancelled else [])]
    database = job_database()
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        if refused := find_refusal(cursor, id_of(batch)):
            raise refused.error
        # What another retry has let succeed meanwhile is left.
        requeue = partial(
            jobs.requeue_jobs,
            cursor,
            run_after=None,
            delay=None,
            statuses=statuses,
            despite_cancels=True,
        )
        return len(requeue_tree(cursor, batch.pk, statuses, requeue).ids)


def requeue_tree(
    cursor: Cursor, batch_id: int, statuses: Sequence[str], requeue: Requeue
) -> RequeuedTree:
    """Requeue the jobs below a batch that ended with *statuses*, in the open transaction.

    A cancel of the tree is taken back.
    """
    first = _requeue(cursor, batch_id, statuses, requeue, of_gather_and_then=False)
    # Once only: a cancel that comes meanwhile holds.
    uncancels = JobStatus.CANCELLED in statuses or bool(first.ids)
    # Counted when the jobs are requeued: before that nothing of them is unfinished.
    _open_again(cursor, batch_id, first.touched, uncancels=uncancels)
    # Jobs that follow what is open again run again; the others are left.
    last = _requeue(
        cursor, batch_id, statuses, requeue, of_gather_and_then=True, despite_failures=not first.ids
    )
    _open_again(cursor, batch_id, last.touched, uncancels=bool(last.ids) and not uncancels)
    return RequeuedTree(
        first.ids + last.ids, first.conflicts + last.conflicts, first.touched | last.touched
    )


def _open_again(cursor: Cursor, batch_id: int, touched: set[int], *, uncancels: bool) -> None:
    """Open batches of which jobs were requeued, and all that a cancel of the tree has closed."""
    if uncancels:
        touched = touched.union(batch_retries.uncancel_batches(cursor, batch_id))
    batches.open_again(cursor, touched)


def find_refusal(cursor: Cursor, batch_id: int) -> RefusedRetry | None:
    """Keep a tree from being deleted until the transaction ends, or return why nothing of it may
    run again.
    """
    held = batch_retries.hold_tree(cursor, batch_id)
    if held is None:
        return RefusedRetry(unknown(batch_id))
    root_id, is_deleting = held
    if is_deleting:
        said = f"workflow {root_id} is being deleted: nothing of it runs again."
        return RefusedRetry(JobError(said))
    owner_id = batch_retries.find_cancelled_owner(cursor, batch_id)
    if owner_id is None:
        return None
    said = f"batch {batch_id} cannot be run again: batch {owner_id} above it is cancelled. "
    return RefusedRetry(JobError(said + "Retry that one."), owner_id)


def _requeue(
    cursor: Cursor,
    batch_id: int,
    statuses: Sequence[str],
    requeue: Requeue,
    *,
    of_gather_and_then: bool,
    despite_failures: bool = False,
) -> RequeuedTree:
    """Requeue jobs page by page."""
    done, queues = RequeuedTree([], [], set()), set[str]()
    behind = batch_retries.BEGIN
    while True:
        page = batch_retries.list_unsuccessful(
            cursor,
            batch_id,
            list(statuses),
            of_gather_and_then=of_gather_and_then,
            despite_failures=despite_failures,
            behind=behind,
            max_jobs=PAGE,
        )
        if page:
            owners = {job_id: owner for owner, job_id in page}
            for row in requeue(list(owners)):
                if row.queue_name is None:
                    done.conflicts.append((row.id, row.twin_id))
                else:
                    done.ids.append(row.id)
                    queues.add(row.queue_name)
                    # Not those of others, whose locks we would hold when we lock the whole tree.
                    done.touched.add(owners[row.id])
        if len(page) < PAGE:
            break
        behind = page[-1]
    notifications.notify_workers(cursor, list(queues))
    return done


def cancel(batch: AnyBatch) -> bool:
    """Cancel a batch and all below it; return False if there is nothing to cancel any more."""
    database = job_database()
    is_left = is_of_caller(connections[database])
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        is_news = batches.cancel_batch(cursor, id_of(batch))
        if is_news is None:
            raise unknown(batch.pk)
        if is_news and (is_left or batches.is_left(cursor, [batch.pk])):
            notifications.notify_of_batches(cursor)
    return is_news
