"""Giving jobs to a worker over HTTP: the claim of the engine, made anew for each request.

What there is to claim a look tells; what may start, in which order and how many, the statements of
the claim decide, as for workers of ours. The jobs of other tasks are left alone as those are that a
worker of ours does not know.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

from django_pgjobs.choosing import Rooms
from django_pgjobs.declaring.remote import is_remote
from django_pgjobs.http.looking import KNOWN_SECONDS, VAIN_SECONDS, LookResult, looks
from django_pgjobs.http.members import RemoteWorker
from django_pgjobs.http.memory import memory
from django_pgjobs.http.outcomes import attempt_of, cancelled
from django_pgjobs.http.pool import until_uncrossed
from django_pgjobs.http.reporting import deliver
from django_pgjobs.http.station import station
from django_pgjobs.queries.claims import HEAD, Segment
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.remote import Assigned
from django_pgjobs.results import decode_or_none
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.claimer import Claimer
from django_pgjobs.worker.claiming.filling import filling_of
from django_pgjobs.worker.claiming.groups import keyed_lanes_of, last_served
from django_pgjobs.worker.claiming.plan import Claim, Listing, Plan
from django_pgjobs.worker.running.calling import (
    TaskCall,
    failure,
    make_attempt,
    prepare,
    timeout_of,
)
from django_pgjobs.worker.running.outcome import Entry, Outcome, released
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.sending import Sender
from django_pgjobs.worker.turns.turn import Turn

# A look that takes longer reads past many jobs that have run; then claims begin where it found
# jobs.
SLOW_SECONDS = 0.01
# How often a request claims at most, if what it gets is not for it and has to go back.
MOST_CLAIMS = 5
NOT_FOR_IT = "given back: the token or the worker is not for it"


@dataclass(frozen=True, slots=True)
class GivenAttempt:
    """An attempt that goes to a worker, with its arguments, and the seconds it has run."""

    attempt: Attempt
    call: TaskCall
    ran: float = 0.0

    def as_dict(self, worker: RemoteWorker) -> dict[str, Any]:
        """Return the assignment as an answer has it."""
        attempt, row = self.attempt, self.attempt.row
        timeout = timeout_of(attempt)
        detail = json.loads(row.detail) if row.detail else {}
        metadata = decode_or_none(detail.get("metadata"))
        return {
            "assignment": worker.id_of(attempt),
            "job": str(attempt.id),
            "task": row.task_path,
            "queue": row.queue_name,
            "attempt": attempt.attempt,
            "max_attempts": attempt.max_attempts,
            "args": self.call.args,
            "kwargs": self.call.kwargs,
            "priority": row.priority,
            "timeout": timeout,
            "seconds_left": None if timeout is None else max(0.0, timeout - self.ran),
            "batch": None if row.batch_id is None else str(row.batch_id),
            "correlation_id": row.correlation_id,
            "metadata": metadata if isinstance(metadata, dict) else {},
        }


def take(
    worker: RemoteWorker, wanted: int, *, since: float | None = None, insists: bool = True
) -> list[GivenAttempt]:
    """Claim up to *wanted* jobs; those that are not to run are ended or given back at once.

    Where jobs are must have been looked for not before *since*, by default a second ago. If a
    claim by that finds nothing it *insists* on a newer look.
    """
    now = time.monotonic()
    asked = now - KNOWN_SECONDS if since is None else since
    for _ in range(MOST_CLAIMS):
        found = looks.get(since=asked)
        attempts = _claim(worker, wanted, found)
        given = hand_out(worker, [(attempt, 0.0) for attempt in attempts])
        if given or (not attempts and (found.asked_at >= now - VAIN_SECONDS or not insists)):
            return given
        # The look was old, or the jobs that it got had to go back.
        asked = time.monotonic() if attempts else now - VAIN_SECONDS
    return []


def _claim(worker: RemoteWorker, wanted: int, found: LookResult) -> list[Attempt]:
    listing = Listing.of(found.places, worker.options)
    if not listing or not worker.paths:
        return []
    plan = plan_of(listing, wanted, is_slow=found.seconds > SLOW_SECONDS)
    claim = claimed(worker, plan)
    if not claim.rows and plan.holds and not (claim.held or claim.was_locked):
        # It was the turn of somebody else: wait for ours.
        claim = claimed(worker, replace(plan, waits=True))
    _note_walk(claim)
    return [make_attempt(row, worker.options) for row in claim.rows]


def plan_of(listing: Listing, wanted: int, *, is_slow: bool = False) -> Plan:
    """Return the plan of a claim of all places that are listed."""
    segments: list[Segment] = []
    for group in sorted(listing.groups, key=listing.rank):
        segments += Segment.in_turn(group, station.cursors.get(group, ""))
    first = sorted(listing.lanes.items(), key=itemgetter(1))
    return Plan(
        rooms=Rooms(wanted, wanted),
        wanted=wanted,
        floors={lane: head if is_slow else HEAD for lane, head in first},
        segments=segments,
        boosts=listing.boosts,
        caps={},
        limited=frozenset(lane.queue_name for lane in listing.lanes) & listing.limited,
        heads=frozenset(listing.lanes),
        # Nothing is known of what the claim before met.
        skips_locked=True,
    )


def claimed(worker: RemoteWorker, plan: Plan) -> Claim:
    """Send a claim until nobody crosses it; raise Problem (503) if that goes on."""
    state = WorkerState(
        worker.options,
        worker.name,
        worker_id=worker.id,
        paths_of_others=station.paths_of_others(worker.paths),
    )
    return until_uncrossed(partial(_send, state, plan))


def _send(state: WorkerState, plan: Plan, connection: OwnConnection) -> Claim:
    connection.open()
    claimer = Claimer(
        state,
        connection,
        station.refusals,
        detailed_paths=[],
        wants_details=lambda: True,
        declaring_paths=station.declaring_paths(),
    )
    turn = Turn(state.worker_id)
    claim = claimer.plan(turn, plan)
    Sender(state.name).send(turn, connection)
    return claim


def _note_walk(claim: Claim) -> None:
    """Let the next walk through the lanes of a group go on behind those that were served."""
    for group, lanes in keyed_lanes_of(claim.rows).items():
        station.note_served(group, last_served(station.cursors.get(group, ""), lanes))


def hand_out(worker: RemoteWorker, attempts: Iterable[tuple[Attempt, float]]) -> list[GivenAttempt]:
    """Return what is for the worker, and end or give back the rest.

    Each attempt comes with the seconds that it has run by now.
    """
    given: list[GivenAttempt] = []
    ended: list[Entry] = []
    for attempt, ran in attempts:
        outcome = _outcome_before(worker, attempt)
        if outcome is None:
            try:
                given.append(GivenAttempt(attempt, prepare(attempt), ran))
                memory.note(Assigned(attempt.row, ran, False))
                continue
            except Exception as error:
                outcome = failure(attempt, error, worker.options)
        ended.append((attempt, outcome))
    if ended:
        deliver(ended)
    return given


def _outcome_before(worker: RemoteWorker, attempt: Attempt) -> Outcome | None:
    """Return what becomes of a job that is not to begin, None if it is."""
    path = attempt.row.task_path
    is_for_it = path in worker.paths and attempt.row.queue_name in worker.queues
    if not is_remote(attempt.task) or not is_for_it:
        if attempt.task is None:
            station.refusals.note_unknown([path])
        return released(NOT_FOR_IT)
    return filling_of(attempt)


def again(
    worker: RemoteWorker, held: Collection[Assigned], known: Mapping[int, int], wanted: int
) -> list[GivenAttempt]:
    """Return those that a worker runs and does not know of: their answer was lost.

    *known* are the claims of the jobs that it knows of; it gets *wanted* at most. One that is to be
    cancelled is: the worker may have left it out because it was told to end it.
    """
    attempts: list[tuple[Attempt, float]] = []
    ended: list[Entry] = []
    for assigned in held:
        row = assigned.row
        if known.get(row.id) == row.claim:
            continue
        if assigned.is_cancelling:
            attempt = attempt_of(assigned, worker.options)
            ended.append((attempt, cancelled(attempt)))
        else:
            attempts.append((make_attempt(row, worker.options), assigned.ran))
    deliver(ended)
    return hand_out(worker, attempts[:wanted])
