"""Heartbeats: the lease of a worker over HTTP, and of each job that it names.

One lease covers all jobs of a worker, as for workers of ours. Besides, a job that is not named for
as long as a lease lasts is lost alone: it becomes nobody's, and the rescue takes it. An attempt
that takes longer than its timeout ends here, because nobody else watches it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg

from django_pgjobs.conf import get_conf
from django_pgjobs.http.assignments import Assignment
from django_pgjobs.http.members import recent_members, worker_gone
from django_pgjobs.http.options import lease_seconds, make_options
from django_pgjobs.http.outcomes import LOST, attempt_of, timed_out
from django_pgjobs.http.pool import borrowed, turn
from django_pgjobs.http.reporting import deliver
from django_pgjobs.http.station import station
from django_pgjobs.queries import jobs, workers
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.remote import (
    Assigned,
    Beat,
    assigned_rows,
    attempt_name,
    beat_of,
    send_abandonment,
    send_beat,
    send_held,
)
from django_pgjobs.worker.running.calling import timeout_of
from django_pgjobs.worker.running.job_log import log_rescue
from django_pgjobs.worker.running.outcome import Entry
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# What one worker runs is looked at up to here.
MOST_HELD = 10_000
RESCUE_BATCH = 100

CANCELLED, TIMED_OUT = "cancelled", "timed_out"


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a heartbeat led to: which of the named ones are to be ended, and why."""

    beat: Beat
    reasons: dict[Assignment, str]

    def as_dict(self) -> dict[str, Any]:
        """Return it as the answer to a worker's heartbeat has it."""
        return {
            "cancel": [
                {"assignment": assignment.sealed, "reason": reason}
                for assignment, reason in self.reasons.items()
            ],
            "lease_seconds": lease_seconds(),
            "quiet": self.beat.is_quiet,
            "stop": self.beat.is_stopping,
        }


def beat(
    worker_id: int, token_id: int, named: Collection[Assignment], *, of_all: bool = True
) -> Pulse:
    """Renew a worker's lease; *named* is what it works on, all of it unless not *of_all*.

    Raise Problem (404) if the lease is lost.
    """
    lease = lease_seconds()
    asked_at = time.monotonic()
    renewed, rows = turn(
        [
            partial(
                send_beat,
                worker_id=worker_id,
                token_id=token_id,
                lease=lease,
                silent=lease,
                named=sorted({attempt_name(each.job_id, each.claim) for each in named}),
            ),
            partial(send_held, worker_id=worker_id, max_jobs=MOST_HELD),
        ]
    )
    said = beat_of(renewed)
    if said is None:
        recent_members.forget(worker_id)
        raise worker_gone()
    held = assigned_rows(rows, asked_at)
    late = _end_late(held)
    reasons = _reasons(held, late, named)
    silent = _silent(held, said, late, lease) if of_all else []
    is_any_lost = said.next_expiry is not None and said.next_expiry <= 0
    if silent or is_any_lost:
        _rescue(worker_id, silent)
    return Pulse(said, reasons)


def _reasons(
    held: Sequence[Assigned], late: Collection[int], named: Collection[Assignment]
) -> dict[Assignment, str]:
    running = {(each.row.id, each.row.claim): each for each in held}
    reasons = {}
    for assignment in named:
        assigned = running.get((assignment.job_id, assignment.claim))
        if assigned is None:
            reasons[assignment] = LOST
        elif assignment.job_id in late:
            reasons[assignment] = TIMED_OUT
        elif assigned.is_cancelling:
            reasons[assignment] = CANCELLED
    return reasons


def _end_late(held: Sequence[Assigned]) -> set[int]:
    """End the attempts that took longer than they may; return their jobs."""
    late: list[Entry] = []
    options = make_options()
    for assigned in held:
        attempt = attempt_of(assigned, options)
        timeout = timeout_of(attempt)
        if timeout is not None and assigned.ran > timeout:
            late.append((attempt, timed_out(attempt, timeout)))
    delivery = deliver(late)
    return {attempt.id for attempt, _ in late} - delivery.locked


def _silent(
    held: Sequence[Assigned], said: Beat, late: Collection[int], lease: float
) -> list[Assigned]:
    """Return the attempts that began, and were named last, a lease ago."""

    def silence(each: Assigned) -> float:
        name = attempt_name(each.row.id, each.row.claim)
        return min(each.ran, said.ages.get(name, math.inf))

    return [each for each in held if each.row.id not in late and silence(each) >= lease]


def _rescue(worker_id: int, silent: Sequence[Assigned]) -> None:
    """Let silent jobs be nobody's, and take what is nobody's back, as workers of ours do."""
    claims = [(each.row.id, each.row.claim) for each in silent]
    try:
        if claims:
            turn([partial(send_abandonment, worker_id=worker_id, claims=claims)])
            ids = ", ".join(str(job_id) for job_id, _ in claims[:10])
            logger.warning("http worker=%d names %d jobs no more: %s", worker_id, len(claims), ids)
        with borrowed() as connection:
            with connection.cursor() as cursor:
                rescued = jobs.rescue_jobs(
                    cursor, max_jobs=RESCUE_BATCH, default_max_losses=get_conf().MAX_LOSSES
                )
            station.note_rescued(rescued)
            for job in rescued:
                log_rescue(job, None)
            if len(rescued) < RESCUE_BATCH:
                with connection.cursor() as cursor:
                    workers.end_lost_workers(cursor)
    except psycopg.Error as error:
        # Workers of ours find the row that is to blame, or the next heartbeat does it; this worker
        # has done nothing wrong, and its lease is renewed.
        if trouble_of(error) is Trouble.LOST:
            raise
        logger.warning("http jobs cannot be rescued: %s", str(error).strip())
