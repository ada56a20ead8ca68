"""Reads of the Overview: four bounded statements for the whole page."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch

# Open batches, the oldest first, that are looked at for such as stand still, and such as are named.
MAX_OPEN = 1_000
MAX_NAMED = 5


class LiveRow(NamedTuple):
    """What waits and runs in a queue of a backend, or with keys (*is_of_keys*).

    *first* and *second* are backend and queue, or concurrency key and rate limits, each of
    them perhaps None. *looked_at* is how many ready jobs were looked at in all.
    """

    is_of_keys: bool
    first: str | None
    second: str | None
    ready: int
    running: int
    retrying: int
    scheduled: int
    held: int
    waiting_since: datetime | None
    looked_at: int


def count_live_jobs(
    cursor: Cursor, *, max_jobs: int, max_queues: int, max_keys: int
) -> list[LiveRow]:
    """Return what waits and runs per queue, then what waits with keys, most jobs first."""
    params = {"max_jobs": max_jobs, "max_queues": max_queues, "max_keys": max_keys}
    return [LiveRow._make(row) for row in fetch(cursor, "overview_live", params)]


class FinishedRow(NamedTuple):
    """How many jobs finished with a status, in a *bucket* of time or of a queue.

    The last three are the same in all rows: the number of the bucket of now, how many jobs
    were looked at, and when the first of them finished.
    """

    status: str
    bucket: int | None
    queue_name: str | None
    jobs: int
    jobs_hour: int
    jobs_minutes: int
    last_bucket: int
    looked_at: int
    since: datetime


def count_finished_jobs(
    cursor: Cursor, *, bucket_seconds: int, seconds: float, max_jobs: int, max_queues: int
) -> list[FinishedRow]:
    """Return the newest jobs that finished up to *seconds* ago, by time and by queue."""
    params = {
        "bucket_seconds": bucket_seconds,
        "seconds": seconds,
        "max_jobs": max_jobs,
        "max_queues": max_queues,
    }
    return [FinishedRow._make(row) for row in fetch(cursor, "overview_finished", params)]


class QueueFact(NamedTuple):
    """A queue that has settings or is paused."""

    name: str
    max_running: int | None
    is_paused: bool
    reason: str
    paused_by: str


class WorkerFact(NamedTuple):
    """A live worker; it was last heard of *silent_seconds* ago."""

    id: int
    name: str
    version: str
    slots: int
    silent_seconds: float
    is_quiet: bool
    is_stopping: bool
    running: int


class Service(NamedTuple):
    """What some live workers take; *queues* None: all."""

    backends: list[str]
    queues: list[str] | None
    excluded_queues: list[str]

    def takes(self, backend: str, queue_name: str) -> bool:
        """Do they take jobs of the queue? The same is asked in explain_workers.sql."""
        is_named = self.queues is None or queue_name in self.queues
        return is_named and queue_name not in self.excluded_queues and backend in self.backends


class Transaction(NamedTuple):
    """A transaction that keeps dead rows from being removed."""

    pid: int
    application: str
    state: str | None
    seconds: float


class StandingBatch(NamedTuple):
    """A batch that does not go on by itself: it is broken, or was not sealed for long."""

    id: int
    name: str
    is_broken: bool


class Installation(NamedTuple):
    """What the Overview shows beside the jobs."""

    now: datetime
    queues: list[QueueFact]
    workers: list[WorkerFact]
    live_workers: int
    slots: int
    unended_workers: int
    lost_workers: int
    versions: list[str]
    services: list[Service]
    old_transaction: Transaction | None
    live_rows: int
    dead_rows: int
    standing: list[StandingBatch]


def get_installation(
    cursor: Cursor, *, max_rows: int, max_workers: int, old_seconds: float, unsealed_seconds: float
) -> Installation:
    """Return queues, workers, batches that stand still, and what is the matter with the server."""
    params = {
        "max_rows": max_rows,
        "max_workers": max_workers,
        "old_seconds": old_seconds,
        "unsealed_seconds": unsealed_seconds,
        "max_open": MAX_OPEN,
        "max_named": MAX_NAMED,
    }
    [row] = fetch(cursor, "overview_facts", params)
    now, queues, workers, live, slots, unended, lost, versions, services, old, alive, dead = row[
        :12
    ]
    transaction = _decoded(old)
    return Installation(
        now,
        [QueueFact(**queue) for queue in _decoded(queues)],
        [WorkerFact(**worker) for worker in _decoded(workers)],
        live,
        slots,
        unended,
        lost,
        versions,
        [Service(**service) for service in _decoded(services)],
        transaction and Transaction(**transaction),
        alive,
        dead,
        [StandingBatch(**batch) for batch in _decoded(row[12])],
    )


def _decoded(value: Any) -> Any:
    """Return JSON as Python; which connections decode it themselves is a setting of theirs."""
    return json.loads(value) if isinstance(value, str) else value
