"""`manage.py jobs workflows`: trees of batches, what failed in one, and changes of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError
from django.db import connections

from django_pgjobs.exceptions import JobError, TooSlow
from django_pgjobs.management.arguments import add_action, count, job_id
from django_pgjobs.management.printing import (
    Write,
    in_english,
    json_text,
    tell_of_more,
    write_table,
)
from django_pgjobs.management.reading import reading
from django_pgjobs.models import Batch
from django_pgjobs.models.batch_states import LARGE_FIELDS, all_workflows, with_states
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.queries.workflow_pages import (
    MAX_SUMMED,
    TreeRow,
    list_failed,
    list_tree,
    summarise_trees,
)
from django_pgjobs.values.words import counted

COUNTS = ("jobs", "successful", "failed", "cancelled")
LISTED = ("id", "name", "state", *COUNTS, "created_at")
OF_TREE = ("id", "batch", "state", *COUNTS)
OF_FAILED = ("id", "task_path", "attempts", "finished_at", "exception_class", "message")
# Deeper batches stand below each other.
MAX_INDENTED = 20
# That finding the failed jobs of a tree may take, as on its page in the admin.
FAILED_SECONDS = 2.0

DESCRIPTION = """
Lists workflows, newest first, with the numbers of their whole trees. With a verb it prints or
changes one: a workflow, or any batch of it with what is below.

  state       not complete: open, to which more jobs may come; waiting, for other batches;
              running; cancelling. Complete: successful; failed, if not all of it succeeded;
              cancelled, likewise after a cancel, if no job of its own failed; not run, as what
              it follows failed. broken: cannot be counted, see its page in the admin
  jobs        all that were added so far, and how many of them ended as the next columns say
"""
EPILOG = """
examples:
  manage.py jobs workflows --unfinished
  manage.py jobs workflows show 17
  manage.py jobs workflows retry 17
  manage.py jobs workflows cancel 17
  manage.py jobs workflows seal 17
"""
OF_SHOW = """
Prints the batches of a workflow, each with the numbers of its own jobs; what it waits for; and its
newest failed jobs. The state of a batch tells of all below it, too.
"""
OF_RETRY = """
Requeues the failed jobs of a batch and of all below it, in one transaction. What follows them runs
again with the new results, and the callbacks come once more.
"""
OF_SEAL = """
Says that no more jobs come to a batch that is open, because the program that was to seal it has
died. It is complete when what is in it is. This cannot be taken back.
"""
OF_CANCEL = """
Cancels a batch and all below it: jobs that wait end as cancelled, those that run are asked to end.
Workers go on with that, 1,000 jobs at a time. To take it back: retry --cancelled.
"""


def add_workflows(actions: Any) -> None:
    """Add the action to those of `jobs`."""
    parser = add_action(
        actions,
        "workflows",
        help="List workflows; show, retry, cancel and seal one.",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument(
        "--unfinished", action="store_true", help="Only those that are not complete."
    )
    parser.add_argument("--limit", type=count, default=20, metavar="N", help="Default: 20.")
    parser.add_argument("--json", action="store_true", help="Print JSON for programs.")
    verbs = parser.add_subparsers(dest="verb")
    for name, does, description in (
        ("show", "Print a workflow, what it waits for, and what failed.", OF_SHOW),
        ("retry", "Run the failed part of a workflow again.", OF_RETRY),
        ("cancel", "Cancel a workflow.", OF_CANCEL),
        ("seal", "Say that no more jobs come to a batch.", OF_SEAL),
    ):
        verb = add_action(verbs, name, help=does, description=description)
        verb.add_argument("id", type=job_id, help="The id of a workflow, or of a batch below it.")
        if name == "show":
            # Left out it leaves what was given before the verb.
            unless = argparse.SUPPRESS
            verb.add_argument(
                "--json", action="store_true", default=unless, help="Print JSON for programs."
            )
        if name == "retry":
            verb.add_argument(
                "--cancelled", action="store_true", help="Requeue cancelled jobs, too."
            )


def handle(
    write: Write, tell: Write, *, verb: str | None, json: bool = False, **flags: Any
) -> None:
    """List workflows, or show or change one; raise CommandError if that cannot be."""
    try:
        if verb is None:
            unfinished = flags["unfinished"]
            _list(write, tell, unfinished=unfinished, limit=flags["limit"], as_json=json)
        elif verb == "show":
            _show(write, flags["id"], as_json=json)
        elif verb == "retry":
            _retry(write, flags["id"], cancelled=flags["cancelled"])
        elif verb == "cancel":
            _cancel(write, flags["id"])
        else:
            _seal(write, flags["id"])
    except (LookupError, JobError) as error:
        raise CommandError(str(error)) from error


# Changing


def _retry(write: Write, batch_id: int, *, cancelled: bool) -> None:
    batch = _find(batch_id)
    was_cancelled = batch.cancel_requested_at is not None
    number = batch.retry(cancelled=cancelled)
    if number:
        write(f"batch {batch_id}: {counted(number, 'job')} requeued")
    elif was_cancelled and batch.cancel_requested_at is None:
        write(f"batch {batch_id}: no job requeued; what waits runs, as its cancel was taken back")
    else:
        ended = "has failed or was cancelled" if cancelled else "has failed"
        more = "" if cancelled else " --cancelled requeues cancelled ones, too."
        raise CommandError(f"no job of batch {batch_id} was requeued: none {ended}.{more}")


def _cancel(write: Write, batch_id: int) -> None:
    if not _find(batch_id).cancel():
        raise CommandError(f"batch {batch_id} is complete, or was cancelled before.")
    write(f"batch {batch_id}: cancelled")


def _seal(write: Write, batch_id: int) -> None:
    batch = _find(batch_id)
    if batch.sealed_at is not None or batch.follows is not None:
        raise CommandError(f"batch {batch_id} is not open: no more jobs come to it.")
    batch.seal()
    write(f"batch {batch_id}: sealed")


def _find(batch_id: int) -> Batch:
    """Return a batch; raise LookupError if it is gone."""
    batch = rows_of(Batch).filter(pk=batch_id).first()
    if batch is None:
        raise LookupError(f"there is no batch {batch_id}.")
    return batch


# Looking


@in_english()
def _list(write: Write, tell: Write, *, unfinished: bool, limit: int, as_json: bool) -> None:
    """Write the newest workflows, with the numbers of whole trees."""
    roots = with_states(all_workflows().using(job_database())).order_by("-id")
    if unfinished:
        roots = roots.filter(tree_completed_at=None)
    with reading() as cursor:
        read = list(roots.defer(*LARGE_FIELDS)[: limit + 1])
        found = read[:limit]
        sums = summarise_trees(cursor, [root.pk for root in found])
    shown = [root for root in found if root.pk in sums]  # not deleted meanwhile
    rows = [
        (root.pk, root.name, root.state, *_counts(sums[root.pk]), root.created_at) for root in shown
    ]
    if as_json:
        write(json_text([dict(zip(LISTED, row, strict=True)) for row in rows]))
    else:
        nothing = "no workflow is unfinished." if unfinished else "there are no workflows."
        write_table(write, LISTED, rows, nothing=nothing)
        for root in shown:
            if sums[root.pk].is_cut:
                first = "the numbers are those of the first."
                write(f"{root.pk}: more than {MAX_SUMMED} batches; {first}")
    if len(read) > limit:
        tell_of_more(tell, limit)


@in_english()
def _show(write: Write, batch_id: int, *, as_json: bool) -> None:
    """Write a batch and what is below it, and what it waits for; raise LookupError if it is gone.

    At most MAX_SUMMED batches, owners right before what is below them; then what failed.
    """
    with reading() as cursor:
        top = _find(batch_id)
        tree = list_tree(cursor, batch_id, max_children=MAX_SUMMED, max_batches=MAX_SUMMED)
        lines = list(_lines(tree[:MAX_SUMMED]))
        reasons = top.explain().reasons
    is_cut = len(tree) > MAX_SUMMED
    failed = _find_failed(batch_id) if is_cut or any(row.failed for row in tree) else []
    if as_json:
        told = {
            "batches": [_as_values(*line) for line in lines],
            "is_cut": is_cut,
            "reasons": [asdict(reason) for reason in reasons],
            "failed_jobs": failed,
        }
        write(json_text(told))
        return
    cells = [_cells(*line) for line in lines]
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


def _lines(tree: list[TreeRow]) -> Iterator[tuple[TreeRow, Any]]:
    """Yield batches with their states, owners right before what is below."""
    batches = with_states(rows_of(Batch).defer(*LARGE_FIELDS))
    found = batches.in_bulk([row.id for row in tree])
    below: dict[int | None, list[TreeRow]] = {}
    for row in tree[1:]:
        below.setdefault(row.parent_id, []).append(row)
    waiting = tree[:1]
    while waiting:
        row = waiting.pop()
        if row.id in found:  # not deleted meanwhile
            yield row, found[row.id]
            waiting += reversed(below.get(row.id, []))


def _cells(row: TreeRow, batch: Any) -> tuple[object, ...]:
    name = str(batch).rpartition(" #")[0]
    return row.id, "  " * min(row.depth, MAX_INDENTED) + name, batch.state, *_counts(row)


def _as_values(row: TreeRow, batch: Any) -> dict[str, Any]:
    told = {"id": row.id, "name": batch.name, "follows": batch.follows, "state": batch.state}
    return told | dict(zip(COUNTS, _counts(row), strict=True)) | {"depth": row.depth}


def _counts(row: Any) -> Iterable[int]:
    return (getattr(row, name) for name in COUNTS)
