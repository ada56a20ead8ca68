"""Statements on retries of trees: which jobs run again, and whether they may."""

from __future__ import annotations

from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch

# Before all jobs of a tree, by batch and id.
BEGIN = (0, 0)


class RequeueRefusal(NamedTuple):
    """Why a job is not requeued: its workflow *is_deleting*, else its batch was cancelled."""

    batch_id: int
    is_deleting: bool


def find_requeue_refusals(cursor: Cursor, ids: list[int]) -> dict[int, RequeueRefusal]:
    """Return by their ids those finished jobs that are not requeued by themselves, and why."""
    rows = fetch(cursor, "find_requeue_refusals", {"ids": ids})
    return {job_id: RequeueRefusal._make(row) for job_id, *row in rows}


def hold_tree(cursor: Cursor, batch_id: int) -> tuple[int, bool] | None:
    """Keep the tree of a batch from being deleted until the transaction ends.

    Return its root, and whether it is being deleted already; None if there is no such batch.
    """
    rows: list[tuple[int, bool]] = fetch(cursor, "hold_tree", {"batch_id": batch_id})
    return rows[0] if rows else None


def find_cancelled_owner(cursor: Cursor, batch_id: int) -> int | None:
    """Return the highest batch above this one that is cancelled, None if none is."""
    rows = fetch(cursor, "find_cancelled_owner", {"batch_id": batch_id})
    return rows[0][0] if rows else None


def uncancel_batches(cursor: Cursor, batch_id: int) -> list[int]:
    """Let a tree begin jobs again; return the batches that are to be settled for that.

    Where something is cancelled all batches stay locked until the transaction ends: a cancel that
    is only noted is not to be counted beside this.
    """
    [(has_cancels,)] = fetch(cursor, "has_cancels", {"batch_id": batch_id})
    if not has_cancels:
        return []
    fetch(cursor, "lock_tree", {"batch_id": batch_id})
    rows = fetch(cursor, "uncancel_batches", {"batch_id": batch_id})
    return [uncancelled for (uncancelled,) in rows]


def list_unsuccessful(
    cursor: Cursor,
    batch_id: int,
    statuses: list[str],
    *,
    of_gather_and_then: bool,
    despite_failures: bool = False,
    behind: tuple[int, int] = BEGIN,
    max_jobs: int,
) -> list[tuple[int, int]]:
    """Return batch and id of jobs below *batch_id* that ended with *statuses*, behind one.

    *of_gather_and_then*: only the jobs of these whose predecessors are complete, *despite_failures*
    of them or without; else all others.
    """
    params = {
        "batch_id": batch_id,
        "statuses": statuses,
        "of_gather_and_then": of_gather_and_then,
        "despite_failures": despite_failures,
        "behind_batch": behind[0],
        "behind_id": behind[1],
        "max_jobs": max_jobs,
    }
    return fetch(cursor, "list_unsuccessful", params)
