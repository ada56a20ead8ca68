"""Statements on jobs.

The worker's are named `send_*`: they send and fetch nothing, because several travel in one
round trip (`queries.connection.OwnConnection.round_trip`), whose rows come afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_pgjobs.queries import dependencies
from django_pgjobs.queries.arrays import array_text, columns_of
from django_pgjobs.queries.crossing import fetch_again_if_crossed
from django_pgjobs.queries.cursor import Cursor, execute, fetch
from django_pgjobs.status import FINISHED, UNFINISHED
from django_pgjobs.values import notes

# How many interruptions because of its worker a job has free; each further one uses up an attempt.
FREE_INTERRUPTIONS = 10
# Entries kept in a job's list of errors: the first one and the newest.
MAX_ERRORS = 25
# How a time is written, in seconds.
MICROSECONDS = "{:.6f}"


class Success(NamedTuple):
    """An attempt that returned; *result* is JSON text, empty for None."""

    id: int
    claim: int
    result: str
    age: float
    duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """An attempt after which the job is `failed` or `cancelled`; *error* is JSON text or empty.

    One that is not *counted* was never begun.
    """

    id: int
    claim: int
    status: str
    error: str
    note: str
    age: float
    duration: float
    counted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """An attempt after which the job is ready again, *delay* seconds from now (None: at once).

    One that is *counted* uses up an attempt; one that was *interrupted* does if there were many.
    One whose task was not *begun* has been waiting all the time.
    """

    id: int
    claim: int
    delay: float | None
    counted: bool
    error: str
    note: str
    age: float
    duration: float
    interrupted: bool = False
    begun: bool = False
    is_async: bool = False

    @property
    def counted_from(self) -> int | None:
        """After how many interruptions the attempt counts; None: after none."""
        return 0 if self.counted else FREE_INTERRUPTIONS if self.interrupted else None


def send_successes(
    cursor: Cursor, outcomes: Sequence[Success], *, skips_locked: bool = False
) -> None:
    """Send the finish of attempts that returned; the rows are the ids really finished."""
    params = successes_params(outcomes) | {"waits": not skips_locked}
    execute(cursor, "finish_successful", params)


def successes_params(outcomes: Sequence[Success]) -> dict[str, object]:
    """Return what finishes attempts that returned."""
    ids, claims, results, ages, durations = columns_of(outcomes, 5)
    return {
        "ids": array_text(ids),
        "claims": array_text(claims),
        "results": "\n".join(results),
        "ages": array_text(map(MICROSECONDS.format, ages)),
        "durations": array_text(map(MICROSECONDS.format, durations)),
    }


def send_ends(cursor: Cursor, outcomes: Sequence[End], *, skips_locked: bool = False) -> None:
    """Send the finish of attempts that failed for good or were cancelled."""
    execute(cursor, "finish_unsuccessful", ends_params(outcomes) | {"waits": not skips_locked})


def ends_params(outcomes: Sequence[End]) -> dict[str, object]:
    """Return what finishes attempts that failed for good or were cancelled."""
    return {
        "ids": [o.id for o in outcomes],
        "claims": [o.claim for o in outcomes],
        "statuses": [o.status for o in outcomes],
        "errors": "\n".join(o.error for o in outcomes),
        "notes": [o.note for o in outcomes],
        "ages": [o.age for o in outcomes],
        "durations": [o.duration for o in outcomes],
        "counted": [o.counted for o in outcomes],
        "max_errors": MAX_ERRORS,
    }


def send_returns(cursor: Cursor, outcomes: Sequence[Return], *, skips_locked: bool = False) -> None:
    """Send the give-back of jobs that are to run again."""
    execute(cursor, "give_back_jobs", returns_params(outcomes) | {"waits": not skips_locked})


def returns_params(outcomes: Sequence[Return]) -> dict[str, object]:
    """Return what gives jobs back that are to run again."""
    return {
        "ids": [o.id for o in outcomes],
        "claims": [o.claim for o in outcomes],
        "delays": [o.delay for o in outcomes],
        "counted_from": [o.counted_from for o in outcomes],
        "errors": "\n".join(o.error for o in outcomes),
        "notes": [o.note for o in outcomes],
        "ages": [o.age for o in outcomes],
        "durations": [o.duration for o in outcomes],
        "begun": [o.begun for o in outcomes],
        "asyncs": [o.is_async for o in outcomes],
        "max_errors": MAX_ERRORS,
    }


def send_owned(cursor: Cursor, attempts: Iterable[tuple[int, int]]) -> None:
    """Send the question which of some attempts (id, claim) still own their jobs."""
    ids, claims = zip(*attempts, strict=True)
    execute(cursor, "list_owned_jobs", {"ids": list(ids), "claims": list(claims)})


def send_note(cursor: Cursor, job_id: int, note: str) -> None:
    """Send the note for a job's row that says why it is left alone."""
    execute(cursor, "note_job", {"id": job_id, "note": note})


def send_progress(cursor: Cursor, reports: Sequence[tuple[int, int, float, str]]) -> None:
    """Send (id, claim, longest pause in seconds, JSON text) of what running attempts report."""
    params = {
        "ids": [job_id for job_id, _, _, _ in reports],
        "claims": [claim for _, claim, _, _ in reports],
        "pauses": [pause for _, _, pause, _ in reports],
        "progress": "\n".join(text for _, _, _, text in reports),
    }
    execute(cursor, "write_progress", params)


def send_promotion(
    cursor: Cursor, *, max_jobs: int, passed_over: Sequence[int] = (), acts: bool = True
) -> None:
    """Send the promotion of jobs whose time has come; the row is (promoted, next due in s,
    None). Unless it *acts* the last is the ids of the jobs that would be promoted.
    """
    params = {"acts": acts, "max_jobs": max_jobs, "passed_over": array_text(passed_over)}
    execute(cursor, "promote_due_jobs", params)


def send_cancel_listing(cursor: Cursor, *, worker_id: int) -> None:
    """Send the question which of the worker's running jobs somebody asked to cancel."""
    execute(cursor, "list_cancelled_jobs", {"worker_id": worker_id})


def send_release_unheld(
    cursor: Cursor,
    *,
    worker_id: int,
    held_ids: list[int],
    max_jobs: int,
    note: str = "",
    acts: bool = True,
) -> None:
    """Send the return of jobs that the worker runs in the table and that are not in *held_ids*.

    Unless it *acts* the rows are the ids of the jobs that would be returned.
    """
    params = {
        "worker_id": worker_id,
        "held_ids": held_ids,
        "max_jobs": max_jobs,
        "note": note,
        "max_dependencies": dependencies.PAGE,
    }
    execute(cursor, "release_unheld_jobs", params | {"acts": acts})


class Rescued(NamedTuple):
    """A job that was taken from a lost worker."""

    id: int
    task_path: str
    queue_name: str
    status: str
    attempts: int
    worker_id: int | None
    correlation_id: str = ""


def rescue_jobs(
    cursor: Cursor, *, max_jobs: int, default_max_losses: int, passed_over: Sequence[int] = ()
) -> list[Rescued]:
    """Return a page of the jobs of lost workers to the queue, or fail them."""
    rows = _rescue(cursor, max_jobs, default_max_losses, passed_over, acts=True)
    return [Rescued._make(row) for row in rows]


def find_lost_job(cursor: Cursor, *, passed_over: Sequence[int]) -> list[int]:
    """Return the id of the job that `rescue_jobs` would rescue first, if there is one."""
    return [row[0] for row in _rescue(cursor, 1, 1, passed_over, acts=False)]


def _rescue(
    cursor: Cursor, max_jobs: int, max_losses: int, passed_over: Sequence[int], *, acts: bool
) -> list[Any]:
    params = {
        "acts": acts,
        "max_jobs": max_jobs,
        "passed_over": array_text(passed_over),
        "default_max_losses": max_losses,
        "max_errors": MAX_ERRORS,
        "note": f"{notes.WORKER_LOST}: its lease ended before the job did",
        "note_together": (
            f"{notes.WORKER_LOST} together with others: its lease ended before this and other "
            "jobs did"
        ),
        "max_dependencies": dependencies.PAGE,
    }
    return fetch(cursor, "rescue_jobs", params)


def cancel_jobs(
    cursor: Cursor, ids: list[int], *, statuses: Collection[str] = UNFINISHED
) -> dict[int, str]:
    """Cancel jobs; return id -> status before of those that had one of *statuses*, unlocked."""
    params = {
        "ids": ids,
        "statuses": sorted(statuses),
        "max_dependencies": dependencies.PAGE,
    }
    rows = fetch_again_if_crossed(cursor, "cancel_jobs", params)
    dependencies.resolve_rest(cursor, rows)
    return {job_id: status for job_id, status, *_ in rows if status}


class RequeuedJob(NamedTuple):
    """A finished job that was given new attempts, or stays for a twin with its unique key.

    Only the first has a *queue_name*, and a *batch_id* if it is in one; *twin_id* may be None if
    the twin was not visible yet.
    """

    id: int
    queue_name: str | None
    twin_id: int | None
    batch_id: int | None


def requeue_jobs(
    cursor: Cursor,
    ids: list[int],
    *,
    run_after: datetime | None,
    delay: float | None,
    spread: float = 0.0,
    statuses: Collection[str] = FINISHED,
    despite_cancels: bool = False,
) -> list[RequeuedJob]:
    """Give finished jobs new attempts; those that another transaction locks are left out.

    So are those that have not one of *statuses* any more, and those of batches that were cancelled,
    unless *despite_cancels*: that is then taken back. With *delay*, each of them is due at random
    within *spread* seconds after it.
    """
    # Jobs that waited for the former end do not wait for the next one.
    dependencies.resolve_dependencies(cursor, ids)
    params = {
        "ids": ids,
        "run_after": run_after,
        "delay": delay,
        "spread": spread,
        "statuses": sorted(statuses),
        "note": "requeued",
        "despite_cancels": despite_cancels,
    }
    return [
        RequeuedJob._make(row) for row in fetch_again_if_crossed(cursor, "requeue_jobs", params)
    ]


def reschedule_jobs(
    cursor: Cursor,
    ids: list[int],
    *,
    run_after: datetime | None,
    delay: float | None,
    spread: float = 0.0,
) -> dict[int, str]:
    """Move waiting jobs to another time; return id -> queue of those that were.

    With *delay*, each of them is due at random within *spread* seconds after it.
    """
    params = {"ids": ids, "run_after": run_after, "delay": delay, "spread": spread}
    return dict(fetch_again_if_crossed(cursor, "reschedule_jobs", params))


def get_job_status(cursor: Cursor, job_id: int) -> str | None:
    """Return a job's status, None if there is no such job."""
    rows = fetch(cursor, "get_job_status", {"id": job_id})
    return rows[0][0] if rows else None


class JobRow(NamedTuple):
    """What get_job.sql returns; the JSON columns are text."""

    id: int
    status: str
    task_path: str
    queue_name: str
    priority: int
    run_after: datetime | None
    enqueued_at: datetime
    started_at: datetime | None
    last_attempted_at: datetime | None
    finished_at: datetime | None
    max_attempts: int | None
    timeout: float | None
    correlation_id: str
    tags: list[str]
    args: str
    kwargs: str
    metadata: str
    errors: str
    result: str | None
    worker_ids: list[str]


def get_job(cursor: Cursor, job_id: int, *, backend: str) -> JobRow | None:
    """Return one job of a backend alias, None if there is none."""
    rows = fetch(cursor, "get_job", {"id": job_id, "backend": backend})
    return JobRow._make(rows[0]) if rows else None


def find_end(cursor: Cursor, job_id: int, claim: int) -> str | None:
    """Return the status with which the attempt of this claim has ended its job, None if not."""
    rows = fetch(cursor, "find_end", {"id": job_id, "claim": claim})
    return rows[0][0] if rows else None


class OldJobs(NamedTuple):
    """Jobs that finished with *status* more than *retention* seconds ago, and no longer than
    *span* seconds before that.
    """

    status: str
    retention: float
    span: float = 1e11


def prune_jobs(
    cursor: Cursor, old: OldJobs, *, max_jobs: int, passed_over: Sequence[int] = ()
) -> int:
    """Delete a page of old jobs; return how many."""
    params = {"max_jobs": max_jobs, "passed_over": array_text(passed_over), "acts": True}
    return len(fetch(cursor, "prune_jobs", old._asdict() | params))


def find_old_job(cursor: Cursor, old: OldJobs, *, passed_over: Sequence[int]) -> list[int]:
    """Return the id of the job that `prune_jobs` would delete first, if there is one."""
    params = {"max_jobs": 1, "passed_over": array_text(passed_over), "acts": False}
    return [row[0] for row in fetch(cursor, "prune_jobs", old._asdict() | params)]


def count_old_jobs(cursor: Cursor, old: OldJobs, *, max_jobs: int) -> int:
    """Return how many jobs `prune_jobs` would delete, at most *max_jobs*."""
    [(count,)] = fetch(cursor, "count_old_jobs", old._asdict() | {"max_jobs": max_jobs})
    return int(count)
