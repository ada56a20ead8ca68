"""Adding to a batch: jobs, batches below it, and what is enqueued at its end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, cast

from django.db import connections, transaction
from django.db.models import QuerySet

from django_pgjobs.compat import AnyTask
from django_pgjobs.conf import get_conf
from django_pgjobs.declaring.calls import Call
from django_pgjobs.enqueueing import dependencies, inserting
from django_pgjobs.enqueueing.columns import Item, make_line, split_item
from django_pgjobs.exceptions import BatchSealed, JobError
from django_pgjobs.queries import batches, notifications
from django_pgjobs.queries.batches import BatchColumns
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.status import OnFailedJob
from django_pgjobs.values.bounds import MAX_BATCH_NAME_BYTES
from django_pgjobs.values.payload import encode_value, is_storable
from django_pgjobs.workflows.blocks import (
    AnyBatch,
    B,
    Block,
    asking_of,
    id_of,
    is_in_block,
    is_known,
    is_of_caller,
    is_replay,
    row_of,
    rows,
    unknown,
)
from django_pgjobs.workflows.inserting import (
    Once,
    end_block,
    hold,
    insert,
    note_added,
    refuse,
    refuse_merging,
)
from django_pgjobs.workflows.steps import check_call, check_task, make_step


def add_calls(batch: AnyBatch, calls: Sequence[Call], once: Once | None) -> list[str]:
    """Add a job per call, those of one task that follow each other in one statement."""
    for call in calls:
        refuse_merging(check_call(call).task)
    if is_replay(batch):
        return []
    ids: list[int] = []
    with transaction.atomic(using=job_database()):
        for task, group in groupby(calls, key=lambda call: call.task):
            pairs = [(call.args, call.kwargs) for call in group]
            for first in range(0, len(pairs), inserting.ROWS_PER_INSERT):
                some = pairs[first : first + inserting.ROWS_PER_INSERT]
                ids += insert(batch, task, [make_line(task, *pair) for pair in some], some, once)
    return list(map(str, ids))


def add_many(
    batch: AnyBatch, task: AnyTask, arguments: Iterable[Item], once: Once | None
) -> list[str]:
    """Add a job of *task* per item, as `Task.enqueue_many` does; return their ids in order."""
    refuse_merging(check_task(task))
    if is_replay(batch):
        return []
    ids: list[int] = []
    with transaction.atomic(using=job_database()):
        for items in inserting.batches(arguments):
            lines = inserting.lines_of_batch(task, items, first_index=len(ids))
            ids += insert(batch, task, lines, map(split_item, items), once)
    return list(map(str, ids))


def add_from(
    batch: AnyBatch, task: AnyTask, queryset: QuerySet[Any], arguments: Mapping[str, Any]
) -> int:
    """Add a job of *task* per row of *queryset*, as `Task.enqueue_from` does; return how many."""
    refuse_merging(check_task(task))
    dependencies.refuse_waiting(task)
    if is_replay(batch):
        return 0
    with transaction.atomic(using=job_database()):
        hold(batch)
        count = inserting.insert_from(task, queryset, arguments, batch_id=id_of(batch))
        note_added(batch, count)
        end_block(batch)
    return count


def seal(batch: AnyBatch) -> None:
    """Say that nothing more is added by hand; what is empty or finished is complete at once."""
    if is_replay(batch):
        return
    batch_id = id_of(batch)
    is_private = batch.block is not None and batch.block.is_private
    is_left = is_of_caller(connections[job_database()]) and not is_private
    with transaction.atomic(using=job_database(), savepoint=False):
        with job_cursor() as cursor:
            is_news = batches.seal_batch(cursor, batch_id)
            if is_news and (is_left or batches.is_left(cursor, [batch_id])):
                # Somebody adds to it, or the transaction keeps an old snapshot.
                notifications.notify_of_batches(cursor)
    if is_news is None:
        raise unknown(batch_id)


def open_part(
    batch: B, name: str, metadata: Mapping[str, Any] | None, on_failed_job: str | None
) -> B:
    """Open a batch that *batch* is to be complete with; it is sealed by hand."""
    check_name(name)
    row = columns_of_batch(name=name, metadata=metadata, on_failed_job=on_failed_job)
    part, is_new = open_below(batch, row)
    part.opener = batch.asking
    if is_replay(batch) or (is_new and is_in_block(batch)):
        part.block = batch.block
    else:
        # Its jobs may run as soon as they are added, or were added by an earlier attempt.
        with job_cursor() as cursor:
            counted = batches.count_jobs(cursor, part.pk, of_tree=False)
        has_jobs = counted is not None and counted[0] > 0
        part.block = Block(is_open=not has_jobs, ends_with_add=True, is_known=not is_new)
    return part


def columns_of_batch(
    *, name: str, metadata: Mapping[str, Any] | None, on_failed_job: str | None
) -> BatchColumns:
    """Return the columns of a part; a follower has others in the place of some."""
    return {
        "follows": None,
        "step": None,
        "name": name,
        "metadata": encode_metadata(metadata),
        "runs_after_failure": False,
        "skips_none": False,
        "on_failed_job": check_policy(on_failed_job),
    }


def check_name(name: object) -> None:
    """Raise TypeError or ValueError if it cannot be the name of a batch."""
    if not is_storable(name):
        raise TypeError(f"expected the name of a batch to be text without NUL, got {name!r}.")
    if len(str(name).encode()) > MAX_BATCH_NAME_BYTES:
        raise ValueError(
            f"expected the name of a batch to have up to {MAX_BATCH_NAME_BYTES} bytes, got "
            f"{name!r:.40}."
        )


def check_policy(on_failed_job: str | None) -> str | None:
    """Return it; raise ValueError if there is no such policy."""
    if on_failed_job is not None and on_failed_job not in OnFailedJob.values:
        raise ValueError(
            "expected on_failed_job to be one of "
            f"{', '.join(map(repr, OnFailedJob.values))}, got {on_failed_job!r}."
        )
    return on_failed_job


def encode_metadata(metadata: Mapping[str, Any] | None) -> str:
    """Return the JSON text of what a project keeps; raise TypeError if it is no dict."""
    if not isinstance(metadata, Mapping | None):
        raise TypeError(f"expected metadata to be a dict, got {metadata!r}.")
    limit = get_conf().MAX_PAYLOAD_BYTES
    return encode_value(dict(metadata or {}), name="metadata", max_bytes=limit)


def open_below(batch: B, row: BatchColumns, *, waits_for: Sequence[int] = ()) -> tuple[B, bool]:
    """Open a batch below another one; return it and whether it is new.

    Raise BatchSealed if the other one takes nothing any more.
    """
    if is_replay(batch) or is_known(batch):
        found = _find_below(batch, row, waits_for)
        if found is not None:
            return found, False
        if is_replay(batch):
            raise JobError(
                f"batch {batch.pk} belongs to a workflow that exists, and has no such batch below "
                "it: it was opened by other code."
            )
    with job_cursor() as cursor:
        opened = batches.open_batch(
            cursor, id_of(batch), row, waits_for=waits_for, asking=asking_of(batch)
        )
    if opened is None:
        _refuse_to_follow(batch, waits_for)
        refuse(batch, "batches")
    batch_id, is_new = opened
    return cast(B, rows().get(pk=batch_id)), is_new


def _refuse_to_follow(owner: AnyBatch, waits_for: Sequence[int]) -> None:
    """Raise if a batch below *owner* must not follow some of these: ValueError, or BatchSealed."""
    found = {row.pk: row for row in rows().filter(pk__in=[owner.pk, *waits_for])}
    for batch_id in waits_for if owner.pk in found else ():
        row = found.get(batch_id)
        if row is None:
            raise unknown(batch_id)
        if row.flow_id != found[owner.pk].flow_id and row.parent_id != owner.pk:
            raise ValueError(
                f"expected batches that follow each other, or that are right below batch "
                f"{owner.pk}, got batch {batch_id}, which is elsewhere."
            )
        with job_cursor() as cursor:
            facts = batches.get_facts(cursor, batch_id, max_named=1, max_counted=1)
        if facts is not None and (facts.is_sealed or facts.is_sealing):
            raise BatchSealed(
                f"batch {batch_id} is sealed, so nothing can follow it any more. Say what follows "
                "it before seal(), or in the block that opens it."
            )


def _find_below(batch: B, row: BatchColumns, waits_for: Sequence[int]) -> B | None:
    """Return the batch that was opened when *batch* was, in the same way; None if none was."""
    follows = row["follows"]
    with job_cursor() as cursor:
        found = batches.list_below(cursor, id_of(batch), follows=follows, waits_for=waits_for)
    replayed = cast(Block, batch.block).replayed
    key = batch.pk, follows, *sorted(waits_for)
    place = replayed[key]
    replayed[key] += 1
    return cast(B, rows().get(pk=found[place])) if place < len(found) else None


def add_callback(batch: AnyBatch, event: str, call: Call) -> None:
    """Let a call be enqueued, with the batch's id as first argument, when the tree is complete."""
    step = make_step(call, leading=1) | {"event": event}
    if is_replay(batch) or (is_known(batch) and _has_callback(batch, step)):
        return
    with job_cursor() as cursor:
        is_added = batches.add_callbacks(cursor, id_of(batch), json.dumps([step]))
    if not is_added:
        row_of(batch)
        raise BatchSealed(
            f"batch {batch.pk} is complete, with everything below it, so nothing is called at its "
            "end any more. Say it before, best in the block of workflow()."
        )


def _has_callback(batch: AnyBatch, step: Mapping[str, Any]) -> bool:
    return json.loads(json.dumps(step)) in row_of(batch).callbacks
