"""Statements on jobs.

The worker's are named `send_*`: they send and fetch nothing, because several travel in one
round trip (`queries.connection.OwnConnection.round_trip`), whose rows come afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django_pgjobs.queries.cursor import Cursor, execute, fetch

# Entries kept in a job's list of errors: the first one and the newest.
MAX_ERRORS = 25


class Lane(NamedTuple):
    """The waiting jobs of one queue of one backend alias."""

    backend: str
    queue_name: str


class Floor(NamedTuple):
    """A position in a lane's index order: minus the priority, then the id."""

    urgency: int
    id: int


HEAD = Floor(-32768, 0)


class ClaimedRow(NamedTuple):
    """What claim_jobs.sql returns of one job."""

    id: int
    claim: int
    attempts: int
    max_attempts: int | None
    timeout: float | None
    priority: int
    backend: str
    queue_name: str
    task_path: str
    args: str
    kwargs: str
    waited: float
    detail: str | None


class Success(NamedTuple):
    """An attempt that returned; *result* is JSON text, empty for None."""

    id: int
    claim: int
    result: str
    age: float
    duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """An attempt after which the job is `failed` or `cancelled`; *error* is JSON text or empty."""

    id: int
    claim: int
    status: str
    error: str
    note: str
    age: float
    duration: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """An attempt after which the job is ready again, *delay* seconds from now (None: at once)."""

    id: int
    claim: int
    delay: float | None
    counted: bool
    error: str
    note: str
    age: float
    duration: float


def insert_job(cursor: Cursor, row: Mapping[str, Any]) -> tuple[int, datetime, datetime | None]:
    """Insert one job; return its id, `enqueued_at` and `run_after`."""
    [(job_id, enqueued_at, run_after)] = fetch(cursor, "enqueue_job", row)
    return job_id, enqueued_at, run_after


def insert_jobs(cursor: Cursor, row: Mapping[str, Any]) -> list[int]:
    """Insert many jobs of one task; return their ids in the order given."""
    return [job_id for (job_id,) in fetch(cursor, "enqueue_jobs", row)]


def insert_jobs_from(
    cursor: Cursor, select: str, select_params: Sequence[Any], row: Mapping[str, Any]
) -> int:
    """Insert a job for every row of *select*, whose one column is the JSON of its kwargs.

    *select* is SQL that Django's compiler made of a QuerySet. Return the number of jobs.
    """
    columns = [
        "task_path",
        "queue_name",
        "backend",
        "priority",
        "metadata",
        "max_attempts",
        "timeout",
        "correlation_id",
        "tags",
        "run_after",
        "delay",
    ]
    query = (  # the only composed part is what Django's compiler made
        "INSERT INTO pgjobs_job (task_path, queue_name, backend, priority, metadata, max_attempts,"  # noqa: S608
        " timeout, correlation_id, tags, run_after, kwargs)"
        " SELECT %s::text, %s::text, %s::text, %s::smallint, %s::json, %s::integer,"
        " %s::double precision, %s::text, %s::text[],"
        " COALESCE(%s::timestamptz,"
        " statement_timestamp() + make_interval(secs => %s::double precision)), source.kwargs"
        f" FROM ({select}) AS source (kwargs)"
    )
    cursor.execute(query, [*(row[column] for column in columns), *select_params])
    return cursor.rowcount


def send_claim(
    cursor: Cursor,
    floors: Mapping[Lane, Floor],
    *,
    max_jobs: int,
    worker_id: int,
    worker_name: str,
    detailed: bool,
    detailed_paths: list[str],
) -> None:
    """Send the claim of up to *max_jobs* jobs from the lanes, each from its floor on.

    The jobs of *detailed_paths*, or with *detailed* all of them, come with their whole row.
    """
    params = {
        "backends": [lane.backend for lane in floors],
        "queue_names": [lane.queue_name for lane in floors],
        "floor_urgencies": [floor.urgency for floor in floors.values()],
        "floor_ids": [floor.id for floor in floors.values()],
        "max_jobs": max_jobs,
        "worker_id": worker_id,
        "worker_name": worker_name,
        "detailed": detailed,
        "detailed_paths": detailed_paths,
    }
    execute(cursor, "claim_jobs", params)


def claimed_rows(rows: list[Any]) -> list[ClaimedRow]:
    """Return what the claim took, best priority first, oldest first."""
    claimed = [ClaimedRow._make(row) for row in rows]
    claimed.sort(key=lambda row: (-row.priority, row.id))
    return claimed


def send_successes(cursor: Cursor, outcomes: Sequence[Success]) -> None:
    """Send the finish of attempts that returned; the rows are the ids really finished."""
    params = {
        "ids": array_text(o.id for o in outcomes),
        "claims": array_text(o.claim for o in outcomes),
        "results": "\n".join([o.result for o in outcomes]),
        "ages": array_text(round(o.age, 6) for o in outcomes),
        "durations": array_text(round(o.duration, 6) for o in outcomes),
    }
    execute(cursor, "finish_successful", params)


def send_ends(cursor: Cursor, outcomes: Sequence[End]) -> None:
    """Send the finish of attempts that failed for good or were cancelled."""
    params = {
        "ids": [o.id for o in outcomes],
        "claims": [o.claim for o in outcomes],
        "statuses": [o.status for o in outcomes],
        "errors": "\n".join(o.error for o in outcomes),
        "notes": [o.note for o in outcomes],
        "ages": [o.age for o in outcomes],
        "durations": [o.duration for o in outcomes],
        "max_errors": MAX_ERRORS,
    }
    execute(cursor, "finish_unsuccessful", params)


def send_returns(cursor: Cursor, outcomes: Sequence[Return]) -> None:
    """Send the give-back of jobs that are to run again."""
    params = {
        "ids": [o.id for o in outcomes],
        "claims": [o.claim for o in outcomes],
        "delays": [o.delay for o in outcomes],
        "counted": [o.counted for o in outcomes],
        "errors": "\n".join(o.error for o in outcomes),
        "notes": [o.note for o in outcomes],
        "ages": [o.age for o in outcomes],
        "durations": [o.duration for o in outcomes],
        "max_errors": MAX_ERRORS,
    }
    execute(cursor, "give_back_jobs", params)


def send_progress(cursor: Cursor, reports: Sequence[tuple[int, int, str]]) -> None:
    """Send (id, claim, JSON text) of what running attempts report."""
    params = {
        "ids": [job_id for job_id, _, _ in reports],
        "claims": [claim for _, claim, _ in reports],
        "progress": "\n".join(text for _, _, text in reports),
    }
    execute(cursor, "write_progress", params)


def send_promotion(cursor: Cursor, *, max_jobs: int) -> None:
    """Send the promotion of jobs whose time has come; the row is (promoted, next due in s)."""
    execute(cursor, "promote_due_jobs", {"max_jobs": max_jobs})


def send_lane_listing(cursor: Cursor) -> None:
    """Send the question which lanes have jobs that may run now; the rows are Lanes."""
    execute(cursor, "list_ready_lanes", {})


def send_cancel_listing(cursor: Cursor, *, worker_id: int) -> None:
    """Send the question which of the worker's running jobs somebody asked to cancel."""
    execute(cursor, "list_cancelled_jobs", {"worker_id": worker_id})


def send_release_unheld(cursor: Cursor, *, worker_id: int, held_ids: list[int]) -> None:
    """Send the return of jobs claimed for the worker that are not in *held_ids*."""
    params = {
        "worker_id": worker_id,
        "held_ids": held_ids,
        "note": "released: the connection was lost during the claim",
    }
    execute(cursor, "release_unheld_jobs", params)


class Rescued(NamedTuple):
    """A job that was taken from a lost worker."""

    id: int
    task_path: str
    status: str
    attempts: int
    worker_id: int


def rescue_jobs(cursor: Cursor, *, max_jobs: int, default_max_attempts: int) -> list[Rescued]:
    """Return a page of the jobs of lost workers to the queue, or fail them."""
    params = {
        "max_jobs": max_jobs,
        "default_max_attempts": default_max_attempts,
        "max_errors": MAX_ERRORS,
        "note": "worker lost: its lease ended before the job did",
    }
    return [Rescued._make(row) for row in fetch(cursor, "rescue_jobs", params)]


def cancel_jobs(cursor: Cursor, ids: list[int]) -> dict[int, str]:
    """Cancel jobs; return id -> status before of those that were not finished nor locked."""
    return dict(fetch(cursor, "cancel_jobs", {"ids": ids}))


def requeue_jobs(
    cursor: Cursor, ids: list[int], *, run_after: datetime | None, delay: float | None
) -> dict[int, str]:
    """Give finished jobs new attempts; return id -> queue of those that were."""
    params = {"ids": ids, "run_after": run_after, "delay": delay, "note": "requeued"}
    return dict(fetch(cursor, "requeue_jobs", params))


def reschedule_jobs(
    cursor: Cursor, ids: list[int], *, run_after: datetime | None, delay: float | None
) -> dict[int, str]:
    """Move waiting jobs to another time; return id -> queue of those that were."""
    params = {"ids": ids, "run_after": run_after, "delay": delay}
    return dict(fetch(cursor, "reschedule_jobs", params))


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


def prune_jobs(cursor: Cursor, *, status: str, retention: float, max_jobs: int) -> int:
    """Delete a page of jobs that finished more than *retention* seconds ago; return how many."""
    params = {"status": status, "retention": retention, "max_jobs": max_jobs}
    return len(fetch(cursor, "prune_jobs", params))


def array_text(items: Iterable[object]) -> str:
    """Return the text form of a PostgreSQL array of numbers, faster than a list is adapted."""
    return "{" + ",".join(map(str, items)) + "}"


def row_of_claim(row: ClaimedRow, detail: dict[str, Any]) -> JobRow:
    """Return a claimed job in full, of what the claim returned of it."""

    def instant(name: str) -> datetime | None:
        return datetime.fromisoformat(detail[name]) if detail[name] else None

    return JobRow(
        id=row.id,
        status="running",
        task_path=row.task_path,
        queue_name=row.queue_name,
        priority=row.priority,
        run_after=instant("run_after"),
        enqueued_at=datetime.fromisoformat(detail["enqueued_at"]),
        started_at=instant("started_at"),
        last_attempted_at=instant("last_attempted_at"),
        finished_at=None,
        max_attempts=row.max_attempts,
        timeout=row.timeout,
        correlation_id=detail["correlation_id"],
        tags=detail["tags"],
        args=row.args,
        kwargs=row.kwargs,
        metadata=detail["metadata"],
        errors=detail["errors"],
        result=None,
        worker_ids=detail["worker_ids"],
    )
