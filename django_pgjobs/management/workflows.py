"""`manage.py jobs workflows`: the newest trees of batches, or one of them and what failed in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db import connections

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.management.printing import Write, json_text, write_table
from django_pgjobs.models import Batch
from django_pgjobs.models.batch_states import all_workflows, with_states
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.workflow_pages import (
    MAX_SUMMED,
    TreeRow,
    list_failed,
    list_tree,
    summarise_trees,
)

COUNTS = ("jobs", "successful", "failed", "cancelled")
LISTED = ("id", "name", "state", *COUNTS, "created_at")
OF_TREE = ("id", "batch", "state", *COUNTS)
OF_FAILED = ("id", "task_path", "attempts", "finished_at", "exception_class", "message")
# That finding the failed jobs of a tree may take, as on its page in the admin.
FAILED_SECONDS = 2.0


def list_workflows(write: Write, *, only_open: bool, limit: int, as_json: bool) -> bool:
    """Write the newest workflows, with the numbers of whole trees; return if there are more."""
    roots = with_states(all_workflows()).order_by("-id")
    if only_open:
        roots = roots.filter(tree_completed_at=None)
    read = list(roots.defer("step", "callbacks", "metadata")[: limit + 1])
    found, has_more = read[:limit], len(read) > limit
    with connections[job_database()].cursor() as cursor:
        sums = summarise_trees(cursor, [root.pk for root in found])
    shown = [root for root in found if root.pk in sums]  # not deleted meanwhile
    rows = [
        (root.pk, root.name, root.state, *_counts(sums[root.pk]), root.created_at) for root in shown
    ]
    if as_json:
        write(json_text([dict(zip(LISTED, row, strict=True)) for row in rows]))
        return has_more
    nothing = "no workflow is open." if only_open else "there are no workflows."
    write_table(write, LISTED, rows, nothing=nothing)
    for root in shown:
        if sums[root.pk].is_cut:
            write(f"{root.pk}: more than {MAX_SUMMED} batches; the numbers are those of the first.")
    return has_more


def show_tree(write: Write, batch_id: int, *, as_json: bool) -> None:
    """Write a batch and what is below it, and what it waits for; raise LookupError if it is gone.

    At most MAX_SUMMED batches, owners right before what is below them; then what failed.
    """
    top = Batch.objects.filter(pk=batch_id).first()
    with connections[job_database()].cursor() as cursor:
        tree = list_tree(cursor, batch_id, max_children=MAX_SUMMED, max_batches=MAX_SUMMED)
    if top is None or not tree:
        raise LookupError(f"there is no batch {batch_id}.")
    is_cut = len(tree) > MAX_SUMMED
    rows = list(_lines(tree[:MAX_SUMMED]))
    failed = _find_failed(batch_id) if is_cut or any(row.failed for row in tree) else []
    reasons = top.explain().reasons
    if as_json:
        batches = [dict(zip(OF_TREE, row[1:], strict=True)) | {"depth": row[0]} for row in rows]
        told = {
            "batches": batches,
            "is_cut": is_cut,
            "reasons": [{"code": each.code, "text": each.text} for each in reasons],
            "failed_jobs": failed,
        }
        write(json_text(told))
        return
    cells = [(i, "  " * depth + name, *rest) for depth, i, name, *rest in rows]
    write_table(write, OF_TREE, cells, nothing=f"there is no batch {batch_id}.")
    if is_cut:
        write(f"There are more than {MAX_SUMMED} batches; the others are not shown.")
    for reason in reasons:
        write(f"{reason.text} [{reason.code}]")
    if failed is None:
        write("The failed jobs could not be found in time.")
    elif failed:
        write("Newest failed jobs:")
        write_table(write, OF_FAILED, [tuple(job.values()) for job in failed], nothing="")


def _find_failed(batch_id: int) -> list[dict[str, Any]] | None:
    """Return the newest failed jobs of a tree, None if that takes too long."""
    alias = job_database()
    try:
        with time_budget(alias, FAILED_SECONDS), connections[alias].cursor() as cursor:
            found = list_failed(cursor, batch_id)
    except TooSlow:
        return None
    rows = (
        (job.id, job.task_path, job.attempts, job.finished_at, job.error_class, job.first_line)
        for job in found
    )
    return [dict(zip(OF_FAILED, row, strict=True)) for row in rows]


def _lines(tree: list[TreeRow]) -> Iterator[tuple[Any, ...]]:
    """Yield depth, id, name, state and counts of batches, owners right before what is below."""
    batches = with_states(Batch.objects.defer("step", "callbacks", "metadata"))
    found = batches.in_bulk([row.id for row in tree])
    below: dict[int | None, list[TreeRow]] = {}
    for row in tree[1:]:
        below.setdefault(row.parent_id, []).append(row)
    waiting = tree[:1]
    while waiting:
        row = waiting.pop()
        if row.id in found:  # not deleted meanwhile
            batch = found[row.id]
            name = str(batch).rpartition(" #")[0]
            yield row.depth, row.id, name, batch.state, *_counts(row)
            waiting += reversed(below.get(row.id, []))


def _counts(row: Any) -> Iterable[int]:
    return (getattr(row, name) for name in COUNTS)
