"""Statements on batches of jobs.

Whoever changes jobs of batches notes it (`pgjobs_batch_change`), in the same statement.
`send_settlement` is the last statement of such a transaction, but for a retry: it counts, completes
and goes on with what follows. It waits for nobody, so it may leave batches out; what is noted
stays, and `list_changed` finds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypedDict

from django_pgjobs.queries import notifications
from django_pgjobs.queries.arrays import array_text
from django_pgjobs.queries.cursor import Cursor, execute, fetch
from django_pgjobs.queries.enqueue import JobLine, StartColumns, TaskColumns
from django_pgjobs.queries.jobs import (
    End,
    Return,
    Success,
    ends_params,
    returns_params,
    successes_params,
)

# The most jobs that one statement makes of results; but at least one for each result.
MAX_STREAMED = 10_000
# How many levels of followers one settling goes through: its transaction locks all of them.
MAX_LEVELS = 1_000
# The most batches with something to count that one statement lists.
PAGE = 100
# How often a statement is sent again to see a workflow, or a key, that was just committed.
TRIES = 20


class Asking(NamedTuple):
    """A running job that adds to its own batch; without a value it is nobody."""

    job_id: int | None = None
    claim: int | None = None


NOBODY = Asking()


class BatchColumns(TypedDict):
    """The columns of a batch below another one; *step* and *metadata* are JSON text.

    A part *follows* nothing and has no step.
    """

    follows: str | None
    step: str | None
    name: str
    metadata: str
    runs_after_failure: bool
    skips_none: bool
    on_failed_job: str | None


class Settled(NamedTuple):
    """What settling came to: a batch that somebody else holds, one that is open, or a queue.

    Of one that *goes on* a page was done, and more is to be. *unfinished* is the number of jobs
    that an open batch waits for, None if it is not sealed.
    """

    batch_id: int | None
    is_missed: bool
    goes_on: bool
    unfinished: int | None
    queue_name: str | None


class BatchFacts(NamedTuple):
    """What a batch waits for, as describe_batch.sql says."""

    broken: str
    is_sealed: bool
    is_complete: bool
    is_tree_complete: bool
    is_cancelled: bool
    unfinished: int
    follows: bool
    waits_for: list[int]
    failed_before: list[int]
    parts: list[int]
    children: list[int]
    changes: int
    is_sealing: bool
    waiting: int
    first_waiting: int | None
    running: int
    holder_pid: int | None
    holder_name: str | None
    holder_seconds: float | None


def open_workflow(
    cursor: Cursor, *, name: str, metadata: str, dedupe_key: str | None, on_failed_job: str
) -> tuple[int, bool] | None:
    """Open a batch at the root of a tree; return its id and whether it is new.

    None: there is one with that key, which this transaction cannot see.
    """
    params = {
        "name": name,
        "metadata": metadata,
        "dedupe_key": dedupe_key,
        "on_failed_job": on_failed_job,
    }
    # One that was committed after the statement began is seen by the next.
    for _ in range(TRIES):
        if rows := fetch(cursor, "open_workflow", params):
            return rows[0][0], rows[0][1]
    return None


def list_below(
    cursor: Cursor, parent_id: int, *, follows: str | None, waits_for: Sequence[int]
) -> list[int]:
    """Return the ids of the batches right below one that follow just those of *waits_for*."""
    params = {"parent_id": parent_id, "follows": follows, "waits_for": sorted(waits_for)}
    return [batch_id for (batch_id,) in fetch(cursor, "list_batches_below", params)]


def open_batch(
    cursor: Cursor,
    parent_id: int,
    row: BatchColumns,
    *,
    waits_for: Sequence[int] = (),
    asking: Asking = NOBODY,
) -> tuple[int, bool] | None:
    """Open a batch below *parent_id*, which follows *waits_for*; return its id and whether it is
    new, or None if its parent or one of these takes nothing any more.

    A part that the asking job has opened before under that name is not new.
    """
    params = {
        **row,
        "parent_id": parent_id,
        "waits_for": list(waits_for),
        **asking._asdict(),
    }
    rows = fetch(cursor, "open_batch", params)
    return (rows[0][0], rows[0][2]) if rows else None


def add_jobs(
    cursor: Cursor,
    batch_id: int,
    row: TaskColumns,
    start: StartColumns,
    lines: Sequence[JobLine],
    *,
    asking: Asking = NOBODY,
) -> list[int]:
    """Insert a job of one task per line into a batch, in the order given; return their ids.

    Return nothing if the batch takes no more jobs, or is not there.
    """
    params = {
        **_add_params(batch_id, row, start, lines, asking),
        "concurrency_keys": _or_none(line.concurrency_key for line in lines),
        "rate_limit_keys": _or_none(line.rate_limit_keys for line in lines),
    }
    return [job_id for (job_id,) in fetch(cursor, "add_to_batch", params)]


class DedupedJob(NamedTuple):
    """The job of a batch that has a dedupe key."""

    dedupe_key: str
    id: int
    is_new: bool


def add_jobs_once(
    cursor: Cursor,
    batch_id: int,
    row: TaskColumns,
    start: StartColumns,
    lines: Sequence[JobLine],
    dedupe_keys: Sequence[str],
    *,
    asking: Asking = NOBODY,
) -> list[DedupedJob]:
    """Do as `add_jobs`, but a job per dedupe key that the batch has not had; return those of all.

    Nothing is returned of a key that is new to a batch which takes nothing any more, or that
    somebody has just taken.
    """
    params = {
        **_add_params(batch_id, row, start, lines, asking),
        "concurrency_keys": [line.concurrency_key for line in lines],
        "rate_limit_keys": [line.rate_limit_keys for line in lines],
        "dedupe_keys": list(dedupe_keys),
    }
    return [DedupedJob._make(found) for found in fetch(cursor, "add_once_to_batch", params)]


def _add_params(
    batch_id: int, row: TaskColumns, start: StartColumns, lines: Sequence[JobLine], asking: Asking
) -> dict[str, object]:
    return {
        **row,
        **start,
        "args": "\n".join([line.args for line in lines]),
        "kwargs": "\n".join([line.kwargs for line in lines]),
        "batch_id": batch_id,
        **asking._asdict(),
    }


def _or_none(keys: Iterable[str | None]) -> list[str | None] | None:
    found = list(keys)
    return found if any(found) else None


def hold_batch(cursor: Cursor, batch_id: int, *, asking: Asking = NOBODY) -> bool:
    """Keep a batch open until the transaction ends; return False if it takes nothing any more."""
    params = {"batch_id": batch_id, **asking._asdict()}
    return bool(fetch(cursor, "hold_batch", params))


def note_added(cursor: Cursor, batch_id: int, jobs: int) -> None:
    """Note that so many jobs were added to a batch."""
    execute(cursor, "note_added", {"batch_id": batch_id, "jobs": jobs})


def seal_batch(cursor: Cursor, batch_id: int) -> bool | None:
    """Note that no more jobs come; return whether that is news, None if there is no such batch."""
    rows = fetch(cursor, "seal_batch", {"batch_id": batch_id})
    return rows[0][1] if rows else None


def cancel_batch(cursor: Cursor, batch_id: int) -> bool | None:
    """Note that nothing of a tree is to begin; return whether that is news, None if it is gone."""
    rows = fetch(cursor, "cancel_batch", {"batch_id": batch_id})
    return rows[0][1] if rows else None


def add_callbacks(cursor: Cursor, batch_id: int, callbacks: str) -> bool:
    """Add to what is enqueued when the tree is complete; return False if it is by now.

    *callbacks* is JSON text of a list.
    """
    params = {"batch_id": batch_id, "callbacks": callbacks}
    return bool(fetch(cursor, "add_callbacks", params))


def page_of_results(
    cursor: Cursor, batch_ids: Sequence[int], *, behind: int, max_results: int
) -> list[tuple[int, int, str | None]]:
    """Return batch, id and result, as JSON text, of the successful jobs of batches, in their order.

    They are those behind one of the first batch.
    """
    params = {
        "batch_ids": array_text(batch_ids),
        "behind": behind,
        "max_results": max_results,
    }
    return fetch(cursor, "list_results", params)


def measure_results(cursor: Cursor, batch_id: int) -> int:
    """Return how many bytes the results of a batch take, as JSON text."""
    return int(fetch(cursor, "measure_results", {"batch_id": batch_id})[0][0])


def count_jobs(cursor: Cursor, batch_id: int, *, of_tree: bool) -> tuple[int, int, int, int] | None:
    """Return how many jobs there are in a batch, how many succeeded, failed, were cancelled.

    None: there is no such batch.
    """
    rows = fetch(cursor, "count_batches", {"batch_id": batch_id, "of_tree": of_tree})
    return rows[0] if rows else None


def get_facts(
    cursor: Cursor, batch_id: int, *, max_named: int, max_counted: int
) -> BatchFacts | None:
    """Return what a batch waits for, None if there is no such batch."""
    params = {"batch_id": batch_id, "max_named": max_named, "max_counted": max_counted}
    rows = fetch(cursor, "describe_batch", params)
    return BatchFacts._make(rows[0]) if rows else None


def list_final(cursor: Cursor, batch_id: int) -> list[int]:
    """Return the ids of the batches below *batch_id*, itself included, that nothing follows."""
    rows = fetch(cursor, "list_final_batches", {"batch_id": batch_id})
    return [final_id for (final_id,) in rows]


# Counting


def send_settlement(cursor: Cursor, ids: Iterable[int], *, levels: int = MAX_LEVELS) -> None:
    """Send the settling of batches, the last statement of its transaction; rows are `Settled`.

    It goes on with what follows these, and what follows that, for *levels* in all.
    """
    params = {"ids": array_text(sorted(set(ids))), "levels": levels}
    execute(cursor, "settle_batches", params)


def settle(cursor: Cursor, ids: Iterable[int]) -> list[Settled]:
    """Settle batches; what is left out of them a worker comes to later."""
    send_settlement(cursor, ids)
    return [Settled._make(row) for row in cursor.fetchall()]


def is_left(cursor: Cursor, ids: Iterable[int]) -> bool:
    """Settle batches; return whether something is left, for workers."""
    return any(each.is_missed or each.goes_on for each in settle(cursor, ids))


def open_again(cursor: Cursor, ids: Iterable[int | None]) -> None:
    """Open the batches of requeued jobs at once, and those that own or follow them.

    So whoever waits for a tree waits again. *ids* may hold None, for jobs of no batch.
    """
    known = {batch_id for batch_id in ids if batch_id is not None}
    if known and is_left(cursor, known):
        notifications.notify_of_batches(cursor)


def send_changed(cursor: Cursor, *, behind: int = 0) -> None:
    """Send the question of which batches something is noted: the ids of a page of them."""
    execute(cursor, "list_changed_batches", {"behind": behind, "max_batches": PAGE})


def list_changed(cursor: Cursor) -> list[int]:
    """Return the ids of the first page of the batches of which something is noted."""
    send_changed(cursor)
    return [batch_id for (batch_id,) in cursor.fetchall()]


def send_broken(cursor: Cursor, batch_id: int, reason: str) -> None:
    """Send that a batch is to be left alone from now on, and why."""
    execute(cursor, "mark_broken_batch", {"batch_id": batch_id, "reason": reason})


# The finish of attempts of jobs in batches; as those in `queries.jobs`


def send_successes(
    cursor: Cursor, outcomes: Sequence[Success], *, skips_locked: bool = False
) -> None:
    """Send the finish of attempts that returned; behind the ids are the queues that got jobs."""
    params = successes_params(outcomes) | {"max_streamed": MAX_STREAMED}
    execute(cursor, "finish_successful_in_batches", params | {"waits": not skips_locked})


def send_ends(cursor: Cursor, outcomes: Sequence[End], *, skips_locked: bool = False) -> None:
    """Send the finish of attempts that failed for good or were cancelled."""
    params: dict[str, Any] = ends_params(outcomes) | {"waits": not skips_locked}
    execute(cursor, "finish_unsuccessful_in_batches", params)


def send_returns(cursor: Cursor, outcomes: Sequence[Return], *, skips_locked: bool = False) -> None:
    """Send the give-back of jobs that are to run again."""
    params: dict[str, Any] = returns_params(outcomes) | {"waits": not skips_locked}
    execute(cursor, "give_back_in_batches", params)
