"""Queries about one job: what it is, what it waits for, who would take it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from django_pgjobs.choosing import Head, Rate, candidates_of
from django_pgjobs.queries.claims import rate_of
from django_pgjobs.queries.control import PauseRow
from django_pgjobs.queries.cursor import Cursor, fetch


class LimitedQueue(NamedTuple):
    """A queue that is limited over all workers."""

    max_running: int
    running: int
    running_ids: list[int] | None


class JobFacts(NamedTuple):
    """What explain_job.sql returns; *lease_ends* is None if the worker is gone.

    *pauses* are those that keep it from being claimed, queue before task before key; *queue* is
    None if its queue has no limit.
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
    allowed_attempts: int | None
    run_after: datetime | None
    due_at: datetime | None
    expires_at: datetime | None
    finished_at: datetime | None
    last_attempted_at: datetime | None
    cancel_requested_at: datetime | None
    note: str
    priority: int
    undeclared: str | None
    exception_class: str | None
    exception_message: str | None
    worker_name: str | None
    lease_ends: datetime | None
    now: datetime
    pauses: list[PauseRow]
    queue: LimitedQueue | None

    @property
    def last_error(self) -> str:
        """The newest exception and the first line of its message; "" without one."""
        name = (self.exception_class or "").removeprefix("builtins.")
        [message, *_] = (self.exception_message or "").strip().splitlines() or [""]
        return f"{name}: {message.rstrip('.')}" if name and message else name


def get_facts(cursor: Cursor, job_id: int, *, max_named: int) -> JobFacts | None:
    """Return what a job says of itself and what holds for it, None if there is none."""
    rows = fetch(cursor, "explain_job", {"id": job_id, "max_named": max_named})
    if not rows:
        return None
    *columns, pauses, queue = rows[0]
    held = [
        PauseRow._make([*names, _moment(paused_at), _moment(resume_at)])
        for *names, paused_at, resume_at in json.loads(pauses or "[]")
    ]
    fullness = LimitedQueue._make(json.loads(queue)) if queue else None
    return JobFacts._make([*columns, held, fullness])


class Predecessor(NamedTuple):
    """A job that another waits for; *total* is how many there are."""

    id: int
    status: str | None
    total: int


def list_predecessors(cursor: Cursor, job_id: int, *, max_jobs: int) -> list[Predecessor]:
    """Return the first of the jobs that a job waits for."""
    rows = fetch(cursor, "explain_dependencies", {"id": job_id, "max_jobs": max_jobs})
    return [Predecessor._make(row) for row in rows]


@dataclass(frozen=True, slots=True)
class RateRow:
    """A rate limit of a lane; only *rate* says something if there is no such limit.

    *free_at* is when there are enough tokens, None if nothing is in the way.
    """

    rate: Rate
    free_at: datetime | None
    name: str | None
    count: int
    period: float
    burst: int


class LaneRow(NamedTuple):
    """The lane of a job as the claim lists it: its first job, and this one.

    *next_id* is the job whose turn it is if the key keeps its order. *pattern* is of the row that
    limits the key; None: each job says so itself.
    """

    head: Head
    pattern: str | None
    next_id: int | None
    running_ids: Sequence[int]
    rates: Sequence[RateRow]

    @property
    def cost(self) -> int:
        """How many tokens there have to be of each rate limit."""
        return max(self.head.costs, default=0)

    @property
    def max_running(self) -> int:
        """How many jobs of its key may run for the job to start."""
        return min(job.max_running for job in candidates_of(self.head))


def get_lane(cursor: Cursor, job: JobFacts, *, max_named: int) -> LaneRow:
    """Return the lane of a ready job; without keys there is nothing but the job in it."""
    head = Head(
        backend=job.backend,
        queue_name=job.queue_name,
        rank=0,
        ids=[job.id],
        queue_room=job.queue.max_running - job.queue.running if job.queue else None,
    )
    rows = []
    if job.concurrency_key is not None or job.rate_limit_keys is not None:
        rows = fetch(cursor, "explain_lane", {"id": job.id, "max_named": max_named})
    if not rows:
        return LaneRow(head, None, None, (), ())
    [(ids, limits, costs, max_running, pattern, next_id, running, running_ids, found)] = rows
    rates = [
        RateRow(rate_of(*row[:2]), _moment(row[2]), *row[3:]) for row in json.loads(found or "[]")
    ]
    head = head._replace(
        concurrency_key=job.concurrency_key,
        ids=ids,
        limits=limits,
        costs=costs,
        max_running=max_running,
        running=running,
        rates=[row.rate for row in rates],
    )
    return LaneRow(head, pattern, next_id, running_ids or (), rates)


def _moment(text: str | None) -> datetime | None:
    """Return an instant as JSON has it."""
    return None if text is None else datetime.fromisoformat(text)


def list_not_run(cursor: Cursor, job_id: int, *, max_batches: int) -> tuple[list[int], bool]:
    """Return the batches that were not begun because a job failed or was cancelled.

    And whether something was cancelled in its batch, or in those that this is in.
    """
    params = {"id": job_id, "max_batches": max_batches}
    rows = fetch(cursor, "list_not_run", params)
    return [batch_id for batch_id, _ in rows], any(has_cancelled for _, has_cancelled in rows)


def list_unsealed(
    cursor: Cursor, job_id: int, *, max_looked_at: int, max_batches: int
) -> list[int]:
    """Return the batches of a finished job's workflow that nobody has sealed."""
    params = {"id": job_id, "max_looked_at": max_looked_at, "max_batches": max_batches}
    return [batch_id for (batch_id,) in fetch(cursor, "list_unsealed", params)]


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


class Taken(Protocol):
    """What a worker asks of a job before it takes it."""

    @property
    def backend(self) -> str: ...

    @property
    def queue_name(self) -> str: ...

    @property
    def task_path(self) -> str: ...


def get_workers(cursor: Cursor, job: Taken, *, max_named: int) -> WorkersRow:
    """Return which workers would take a job."""
    params = {
        "backend": job.backend,
        "queue_name": job.queue_name,
        "task_path": job.task_path,
        "max_named": max_named,
    }
    [row] = fetch(cursor, "explain_workers", params)
    return WorkersRow._make(row)
