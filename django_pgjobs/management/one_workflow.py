"""`manage.py jobs workflows show`: the batches of a tree, what failed in it, who cancelled it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import Q

from django_pgjobs.control.explanation import Reason
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.management.history import Entry, list_history, write_history
from django_pgjobs.management.printing import (
    Write,
    in_english,
    json_text,
    local_time,
    write_table,
)
from django_pgjobs.management.reading import reading
from django_pgjobs.models import Batch
from django_pgjobs.models.batch_states import owners_first
from django_pgjobs.queries.batch_retries import find_cancelled_owner
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.queries.workflow_pages import MAX_SUMMED, TreeRow, list_failed, list_tree
from django_pgjobs.status import OnFailedJob

COUNTS = ("jobs", "successful", "failed", "cancelled")
OF_TREE = ("id", "batch", "state", *COUNTS)
OF_FAILED = ("id", "task_path", "attempts", "finished_at", "exception_class", "message")
# Deeper batches stand below each other.
MAX_INDENTED = 20
# That finding the failed jobs of a tree may take, as on its page in the admin.
FAILED_SECONDS = 2.0
# Batches that are named as those whose failed jobs cancel it.
MAX_NAMED = 10


class Cancel(NamedTuple):
    """Since when a batch is cancelled, and by what, as far as rows say it.

    *cancelled_with* is the highest batch above it that is cancelled; *failed_batches* are those
    with failed jobs that cancel it, by their policy.
    """

    cancel_requested_at: datetime | None = None
    cancelled_with: int | None = None
    failed_batches: tuple[int, ...] = ()


class Workflow(NamedTuple):
    """What is told of a batch and all below it; *failed* is None if that took too long.

    *histories* are what people did to it, and to the batch above that is cancelled.
    """

    lines: list[tuple[TreeRow, Any]]
    is_cut: bool
    reasons: tuple[Reason, ...]
    failed: list[dict[str, Any]] | None
    cancel: Cancel
    histories: dict[int, list[Entry] | None]


@in_english()
def show_workflow(write: Write, batch_id: int, *, as_json: bool) -> None:
    """Write a batch and what is below it, and what it waits for; raise LookupError if it is gone.

    At most MAX_SUMMED batches, owners right before what is below them; then what failed, and who
    or what cancelled it.
    """
    found = _read(batch_id)
    if as_json:
        write(json_text(_all_values(found)))
        return
    cells = [_cells(*line) for line in found.lines]
    write_table(write, OF_TREE, cells, nothing=f"there is no batch {batch_id}.")
    if found.is_cut:
        write(f"There are more than {MAX_SUMMED} batches; the others are not shown.")
    for reason in found.reasons:
        write(f"{reason.text} [{reason.code}]")
    if found.failed is None:
        write("The failed jobs could not be found in time.")
    elif found.failed:
        write("Newest failed jobs:")
        write_table(write, OF_FAILED, [tuple(job.values()) for job in found.failed], nothing="")
    _write_cancel(write, found)
    for each, entries in found.histories.items():
        write_history(write, f" of batch {each}", entries)


def find_batch(batch_id: int) -> Batch:
    """Return a batch; raise LookupError if it is gone."""
    batch = rows_of(Batch).filter(pk=batch_id).first()
    if batch is None:
        raise LookupError(f"there is no batch {batch_id}.")
    return batch


def _read(batch_id: int) -> Workflow:
    with reading() as cursor:
        top = find_batch(batch_id)
        tree = list_tree(cursor, batch_id, max_children=MAX_SUMMED, max_batches=MAX_SUMMED)
        lines = list(owners_first(tree[:MAX_SUMMED]))
        reasons = top.explain().reasons
        cancel = _find_cancel(cursor, top)
    is_cut = len(tree) > MAX_SUMMED
    failed = _find_failed(batch_id) if is_cut or any(row.failed for row in tree) else []
    ids = [batch_id] if cancel.cancelled_with is None else [batch_id, cancel.cancelled_with]
    histories = {each: list_history(Batch, each) for each in ids}
    return Workflow(lines, is_cut, reasons, failed, cancel, histories)


def _find_cancel(cursor: Cursor, top: Batch) -> Cancel:
    if top.cancel_requested_at is None:
        return Cancel()
    owner_id = find_cancelled_owner(cursor, top.pk)
    highest = top.pk if owner_id is None else owner_id
    its_own = Q(pk=highest, on_failed_job=OnFailedJob.BRANCH)
    below = Q(root_id=highest, on_failed_job=OnFailedJob.WORKFLOW)
    failing = rows_of(Batch).filter(its_own | below, failed__gt=0).order_by("pk")
    named = failing.values_list("pk", flat=True)[:MAX_NAMED]
    return Cancel(top.cancel_requested_at, owner_id, tuple(named))


def _write_cancel(write: Write, found: Workflow) -> None:
    cancel = found.cancel
    if cancel.cancel_requested_at is None:
        return
    said = f"cancelled since {local_time(cancel.cancel_requested_at)}"
    if cancel.cancelled_with is not None:
        said += f", with batch {cancel.cancelled_with} above it"
    if cancel.failed_batches:
        ids = ", ".join(map(str, cancel.failed_batches))
        said += f"; jobs failed in {ids}, whose on_failed_job cancels it"
    elif all(entries == [] for entries in found.histories.values()):
        said += "; by whom nobody has written down, as the admin does"
    write(f"{said}.")


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


def _cells(row: TreeRow, batch: Any) -> tuple[object, ...]:
    name = str(batch).rpartition(" #")[0]
    return row.id, "  " * min(row.depth, MAX_INDENTED) + name, batch.state, *counts_of(row)


def _as_values(row: TreeRow, batch: Any) -> dict[str, Any]:
    told = {"id": row.id, "name": batch.name, "follows": batch.follows, "state": batch.state}
    return told | dict(zip(COUNTS, counts_of(row), strict=True)) | {"depth": row.depth}


def _all_values(found: Workflow) -> dict[str, Any]:
    return {
        "batches": [_as_values(*line) for line in found.lines],
        "is_cut": found.is_cut,
        "reasons": [asdict(reason) for reason in found.reasons],
        "failed_jobs": found.failed,
        **found.cancel._asdict(),
        "history": None if None in found.histories.values() else _history(found),
    }


def _history(found: Workflow) -> list[dict[str, Any]]:
    return [
        {"batch_id": each} | entry._asdict()
        for each, entries in found.histories.items()
        for entry in entries or ()
    ]


def counts_of(row: Any) -> Iterable[int]:
    """Return the numbers of COUNTS."""
    return (getattr(row, name) for name in COUNTS)
