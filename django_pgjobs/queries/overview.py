"""What the Overview shows and warns about besides the jobs."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, decoded, fetch
from django_pgjobs.queries.schedules import LATE_SECONDS

# Open batches, the oldest first, that are looked at for such as stand still, and such as are told
# of. Warnings of some of these may be muted: those that are not are to be found as well.
MAX_OPEN = 1_000
MAX_NAMED = 100
# Samples of the last hour: there is one a minute.
MAX_SAMPLES = 90
# Last runs of schedules that are looked at for failed ones, and schedules that are told of.
MAX_LAST_RUNS = 1_000
MAX_TROUBLED = 100


class TroubledSchedule(NamedTuple):
    """A schedule that is "late", has an "error" or whose last run has "failed"."""

    name: str
    trouble: str
    error: str


class WorkerFact(NamedTuple):
    """A live worker; it was last heard of *silent_seconds* ago, and renewed a lease of so many."""

    id: int
    name: str
    version: str
    slots: int
    silent_seconds: float
    lease_seconds: float
    is_quiet: bool
    is_stopping: bool
    running: int


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
    """What the Overview shows beside the jobs.

    *samples*: seconds since 1970 and how many jobs were ready, of the last hour, by time.
    """

    now: datetime
    samples: list[tuple[float, int]]
    workers: list[WorkerFact]
    live_workers: int
    slots: int
    unended_workers: int
    lost_workers: int
    versions: list[str]
    old_transaction: Transaction | None
    live_rows: int
    dead_rows: int
    standing: list[StandingBatch]
    troubled: list[TroubledSchedule]


def get_installation(
    cursor: Cursor, *, max_workers: int, old_seconds: float, unsealed_seconds: float
) -> Installation:
    """Return workers, what stands still, and what is the matter with the server."""
    params = {
        "max_rows": MAX_SAMPLES,
        "max_workers": max_workers,
        "old_seconds": old_seconds,
        "unsealed_seconds": unsealed_seconds,
        "max_open": MAX_OPEN,
        "max_named": MAX_NAMED,
        "late": LATE_SECONDS,
        "max_runs": MAX_LAST_RUNS,
        "max_schedules": MAX_TROUBLED,
    }
    [row] = fetch(cursor, "overview_facts", params)
    found = Installation._make(row)
    transaction = decoded(found.old_transaction)
    return found._replace(
        samples=[(seconds, ready) for seconds, ready in decoded(found.samples)],
        workers=[WorkerFact(**worker) for worker in decoded(found.workers)],
        old_transaction=transaction and Transaction(**transaction),
        standing=[StandingBatch(**batch) for batch in decoded(found.standing)],
        troubled=[TroubledSchedule._make(schedule) for schedule in decoded(found.troubled)],
    )
