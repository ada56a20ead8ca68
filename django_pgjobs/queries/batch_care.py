"""Statements that look after trees: correcting their numbers, and deleting old ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_pgjobs.queries.arrays import array_text
from django_pgjobs.queries.cursor import Cursor, execute, fetch


class TreeRetention(NamedTuple):
    """How many seconds complete trees are kept; None: for ever.

    A tree in which something failed or was cancelled is kept for *failed*. Its end is announced
    *notice* seconds before.
    """

    successful: float | None
    failed: float | None
    notice: float


def list_ended_trees(
    cursor: Cursor, kept: TreeRetention, *, is_told: bool, behind: int, max_trees: int
) -> list[int]:
    """Return the roots of a page of the trees to be announced, or to be deleted."""
    params = {
        "retention": kept.successful,
        "failed_retention": kept.failed,
        "notice": kept.notice,
        "is_told": is_told,
        "behind": behind,
        "max_trees": max_trees,
    }
    return [root_id for (root_id,) in fetch(cursor, "list_ended_trees", params)]


def count_due_trees(cursor: Cursor, kept: TreeRetention, *, max_trees: int) -> int:
    """Return how many trees a prune would delete now, at most *max_trees*.

    Trees that are not announced yet are among them if there is no *notice*.
    """
    count = 0
    for is_told in (True,) if kept.notice else (True, False):
        page = list_ended_trees(cursor, kept, is_told=is_told, behind=0, max_trees=max_trees)
        count += len(page)
    return min(count, max_trees)


def note_told(cursor: Cursor, roots: Sequence[int]) -> None:
    """Note that the deletion of these trees was announced."""
    execute(cursor, "note_told", {"roots": array_text(roots)})


def begin_deletion(cursor: Cursor, roots: Sequence[int]) -> list[int]:
    """Note that complete trees are being deleted; return those that are, by this or before.

    None of their jobs is requeued from then on. One that is open, or that somebody is about to
    retry, is left. To be called in a transaction: nobody else is to see what is left as marked.
    """
    params = {"roots": array_text(roots)}
    marked = [root_id for (root_id,) in fetch(cursor, "mark_deleting", params)]
    # Only a later statement sees a retry that has committed meanwhile.
    params["marked"] = array_text(marked)
    return [root_id for (root_id,) in fetch(cursor, "list_deleting", params)]


def delete_tree_jobs(cursor: Cursor, roots: Sequence[int], *, max_jobs: int) -> list[str]:
    """Delete a page of the jobs of trees that are being deleted; return their statuses."""
    params = {"roots": array_text(roots), "max_jobs": max_jobs}
    return [status for (status,) in fetch(cursor, "delete_tree_jobs", params)]


def delete_batches(cursor: Cursor, roots: Sequence[int], *, max_batches: int) -> list[bool]:
    """Delete a page of the batches of those trees that have no jobs; return which are roots."""
    empty = [
        root_id for (root_id,) in fetch(cursor, "list_empty_trees", {"roots": array_text(roots)})
    ]
    params = {"roots": array_text(empty), "max_batches": max_batches}
    return [parent_id is None for _, parent_id in fetch(cursor, "delete_batches", params)]


def list_open(cursor: Cursor, *, behind: int, max_batches: int) -> list[tuple[int, bool]]:
    """Return a page of the batches whose tree is open, and whether each is broken."""
    return fetch(cursor, "list_open_batches", {"behind": behind, "max_batches": max_batches})


def send_mending(cursor: Cursor, batch_id: int) -> None:
    """Let the next statement count a broken batch again."""
    execute(cursor, "mend_batch", {"batch_id": batch_id})


def recount(cursor: Cursor, ids: Sequence[int]) -> list[int]:
    """Note corrections to the numbers of batches; return the ids of those that were wrong."""
    rows = fetch(cursor, "recount_batches", {"ids": array_text(ids)})
    return [batch_id for (batch_id,) in rows]
