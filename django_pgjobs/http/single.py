"""The claim of one job that somebody names, if the engine would give it now.

It is listed and chosen among those that may start, as a claim of jobs with keys is; what was chosen
beside it is left.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import psycopg

from django_pgjobs.choosing import Rooms
from django_pgjobs.http.looking import promoting
from django_pgjobs.http.members import Member, RemoteWorker
from django_pgjobs.http.outcomes import running_under
from django_pgjobs.http.pool import turn
from django_pgjobs.http.problems import Problem, not_found, unavailable
from django_pgjobs.http.reporting import deliver
from django_pgjobs.http.station import station
from django_pgjobs.http.taking import GivenAttempt, again, hand_out
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import Floor, Group, Lane, Scope, Segment
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.remote import Claimable, send_claimable
from django_pgjobs.worker.claiming.keyed_claim import KeyedClaim
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import released

# The named job has to be one of the first so many of its lane that may start.
MOST_CHOSEN = 100
NOT_NAMED = "given back: another one was asked for"


def not_next(detail: str = "") -> Problem:
    """Return the problem of a job that the engine would not give now."""
    detail = detail or "It runs, has ended, or something holds it back; explain() says what."
    return Problem("not-next", detail=detail)


class SingleClaim(KeyedClaim):
    """A claim of which one job is wanted."""

    def __init__(self, job_id: int, scope: Scope, taker: claims.Taker) -> None:
        super().__init__(scope, taker)
        self._job_id = job_id

    def choose(self, rows: list[Any]) -> None:
        super().choose(rows)
        self.chosen = [job for job in self.chosen if job.id == self._job_id]


def take_one(member: Member, job_id: int) -> GivenAttempt:
    """Claim a job; raise Problem if it is not to be had."""
    worker, row = member
    *_, found = promoting(partial(send_claimable, job_id=job_id))
    job = Claimable._make(found[0]) if found else None
    if job is None or job.task_path not in worker.paths or job.queue_name not in worker.queues:
        raise not_found("There is no such job for this worker.")
    if job.claim is not None and job.worker_id == worker.id:
        # The answer was lost.
        given = again(worker, running_under([(job_id, job.claim)]), {}, 1)
    elif row.is_quiet or row.is_stopping:
        raise not_next("The worker was asked to claim nothing.")
    else:
        given = _claim(worker, job_id, job) if job.is_ready else []
    if not given:
        raise not_next()
    return given[0]


def _claim(worker: RemoteWorker, job_id: int, job: Claimable) -> list[GivenAttempt]:
    asked_at = time.monotonic()
    rows = claims.claimed_rows(_taken(worker, job_id, job), asked_at)
    attempts = [make_attempt(row, worker.options) for row in rows]
    others = [attempt for attempt in attempts if attempt.id != job_id]
    # Somebody else has just got it.
    deliver((attempt, released(NOT_NAMED)) for attempt in others)
    return hand_out(worker, [(each, 0.0) for each in attempts if each.id == job_id])


def _taken(worker: RemoteWorker, job_id: int, job: Claimable) -> list[Any]:
    group = Group(job.backend, job.queue_name, job.urgency, job.is_async)
    lane = Lane(job.backend, job.queue_name, job.is_async)
    scope = Scope(
        floors={lane: Floor(job.urgency, job_id)} if job.lane is None else {},
        segments=[] if job.lane is None else [Segment.single(group, job.lane)],
        boosts={},
        slots={},
        rooms=Rooms(MOST_CHOSEN, MOST_CHOSEN),
        max_jobs=MOST_CHOSEN,
    )
    try:
        # If it is not our turn, as others claim jobs with keys, we wait for it.
        for waits in (False, True):
            statements = SingleClaim(job_id, scope, _taker_of(worker)).statements
            hold = partial(claims.send_hold, waits=waits)
            held, *answers = turn([hold, *statements.sends])
            rows = answers[len(statements.before)]
            if held or rows:
                break
        return rows
    except psycopg.Error as error:
        if trouble_of(error) is Trouble.LOCKED:
            raise unavailable("Somebody has what the job needs locked.") from error
        raise


def _taker_of(worker: RemoteWorker) -> claims.Taker:
    others = station.paths_of_others(worker.paths)
    return claims.Taker(
        worker_id=worker.id,
        worker_name=worker.name,
        passed_over_paths=[*others, *station.refusals.passed_over_paths()],
        passed_over=station.refusals.passed_over(),
        detailed=True,
        detailed_paths=[],
        declaring_paths=station.declaring_paths(),
    )
