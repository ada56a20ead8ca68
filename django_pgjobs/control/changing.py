"""What is done to a page of jobs in one transaction, and who has to hear of it.

Each passes over jobs that another transaction has locked, and over those whose status is another
one by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypedDict

from django_pgjobs.queries import batches, jobs, notifications
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.status import JobStatus
from django_pgjobs.values.given import instant_or_delay


class RunTimes(TypedDict):
    """When jobs are to run: at *run_after*, or within *spread* seconds behind a *delay*.

    Both None: now.
    """

    run_after: datetime | None
    delay: float | None
    spread: float


@dataclass
class Effect:
    """What was done to jobs: the ids of those that *changed*, and the *conflicts*.

    A conflict is a job and the twin with its unique key, None if that is not committed yet.
    """

    changed: list[int] = field(default_factory=list)
    conflicts: list[tuple[int, int | None]] = field(default_factory=list)


# Changes those of some jobs that it can, in the open transaction.
Change = Callable[[Cursor, list[int]], Effect]


def times_of(run_after: datetime | timedelta | None) -> RunTimes:
    """Return what a caller said of the time; raise TypeError or ValueError if that is none."""
    instant, delay = instant_or_delay(run_after)
    return {"run_after": instant, "delay": delay, "spread": 0.0}


def cancel_jobs(cursor: Cursor, ids: list[int]) -> Effect:
    """Cancel jobs that wait, and ask those that run to end."""
    cancelled = jobs.cancel_jobs(cursor, ids)
    if JobStatus.RUNNING in cancelled.values():
        notifications.notify_cancelled(cursor)
    return Effect(list(cancelled))


def requeue_jobs(cursor: Cursor, ids: list[int], *, times: RunTimes) -> Effect:
    """Give finished jobs new attempts."""
    effect = Effect()
    queues, batch_ids = [], set()
    for row in jobs.requeue_jobs(cursor, ids, **times):
        if row.queue_name is None:
            effect.conflicts.append((row.id, row.twin_id))
        else:
            effect.changed.append(row.id)
            queues.append(row.queue_name)
            batch_ids.add(row.batch_id)
    if queues:
        notifications.notify_workers(cursor, queues)
        batches.open_again(cursor, batch_ids)
    return effect


def reschedule_jobs(cursor: Cursor, ids: list[int], *, times: RunTimes) -> Effect:
    """Move waiting jobs to another time."""
    moved = jobs.reschedule_jobs(cursor, ids, **times)
    if moved:
        notifications.notify_workers(cursor, list(moved.values()))
    return Effect(list(moved))
