"""Questions about one job: the predicates of the claim, asked one by one."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch


class Facts(NamedTuple):
    """What explain_job.sql returns; *lease_ends* is None if the worker is gone.

    What it says of pauses, limits and keys spares the questions that have no answer.
    """

    id: int
    status: str
    backend: str
    queue_name: str
    task_path: str
    hold: str | None
    concurrency_key: str | None
    rate_limit_keys: str | None
    rate_cost: int
    attempts: int
    max_attempts: int | None
    run_after: datetime | None
    due_at: datetime | None
    finished_at: datetime | None
    last_attempted_at: datetime | None
    cancel_requested_at: datetime | None
    note: str
    exception_class: str | None
    worker_name: str | None
    lease_ends: datetime | None
    now: datetime
    has_pauses: bool
    has_queue_limit: bool


def get_facts(cursor: Cursor, job_id: int) -> Facts | None:
    """Return what a job says of itself, None if there is none."""
    rows = fetch(cursor, "explain_job", {"id": job_id})
    return Facts._make(rows[0]) if rows else None


class Predecessor(NamedTuple):
    """A job that another waits for; *total* is how many there are."""

    id: int
    status: str | None
    total: int


def list_predecessors(cursor: Cursor, job_id: int, *, max_jobs: int) -> list[Predecessor]:
    """Return the first of the jobs that a job waits for."""
    rows = fetch(cursor, "explain_dependencies", {"id": job_id, "max_jobs": max_jobs})
    return [Predecessor._make(row) for row in rows]


class PauseRow(NamedTuple):
    """A pause that holds now."""

    kind: str
    name: str
    reason: str
    paused_by: str
    paused_at: datetime
    resume_at: datetime | None


def list_pauses(cursor: Cursor, job: Facts) -> list[PauseRow]:
    """Return what keeps a job from being claimed, queue before task before key."""
    if not job.has_pauses:
        return []
    params = {
        "queue_name": job.queue_name,
        "task_path": job.task_path,
        "concurrency_key": job.concurrency_key,
    }
    return [PauseRow._make(row) for row in fetch(cursor, "explain_pauses", params)]


class LaneRow(NamedTuple):
    """What the claim sees of a job's keys: it judges all of a lane by its *head_id*."""

    head_id: int
    head_cost: int
    max_running: int
    pattern: str | None
    is_ordered: bool
    next_id: int | None
    running: int
    running_ids: list[int] | None


def get_lane(cursor: Cursor, job: Facts, *, max_named: int) -> LaneRow | None:
    """Return the lane of a ready job, None if it has no keys."""
    if job.concurrency_key is None and job.rate_limit_keys is None:
        return None
    rows = fetch(cursor, "explain_lane", {"id": job.id, "max_named": max_named})
    return LaneRow._make(rows[0]) if rows else None


class QueueRow(NamedTuple):
    """A queue that is limited over all workers."""

    max_running: int
    running: int
    running_ids: list[int] | None


def get_queue(cursor: Cursor, job: Facts, *, max_named: int) -> QueueRow | None:
    """Return how full the queue of a job is, None if it has no limit."""
    if not job.has_queue_limit:
        return None
    rows = fetch(cursor, "explain_queue", {"queue_name": job.queue_name, "max_named": max_named})
    return QueueRow._make(rows[0]) if rows else None


class RateRow(NamedTuple):
    """A rate limit without enough tokens; only *key* is there if there is no such limit."""

    key: str
    name: str | None
    tokens: int
    period: float
    burst: int
    free_at: datetime | None


def list_short_rates(cursor: Cursor, rate_limit_keys: str | None, *, cost: int) -> list[RateRow]:
    """Return the rate limits that a job has to wait for."""
    if rate_limit_keys is None:
        return []
    params = {"rate_limit_keys": rate_limit_keys, "cost": cost}
    return [RateRow._make(row) for row in fetch(cursor, "explain_rates", params)]


def count_before(cursor: Cursor, job_id: int, *, max_jobs: int) -> tuple[int, bool]:
    """Return how many jobs go before one, and whether there are more than *max_jobs*."""
    [(jobs, has_more)] = fetch(cursor, "explain_place", {"id": job_id, "max_jobs": max_jobs})
    return jobs, has_more


class WorkersRow(NamedTuple):
    """How many live workers there are, and how many of them pass each question and those before.

    *awake* are those that nobody asked to be quiet or to stop; the slots and the jobs are theirs.
    """

    live: int
    of_backend: int
    of_queue: int
    of_task: int
    awake: int
    slots: int
    running: int
    names: list[str]


def get_workers(cursor: Cursor, job: Facts, *, max_named: int) -> WorkersRow:
    """Return which workers would take a job."""
    params = {
        "backend": job.backend,
        "queue_name": job.queue_name,
        "task_path": job.task_path,
        "max_named": max_named,
    }
    [row] = fetch(cursor, "explain_workers", params)
    return WorkersRow._make(row)
