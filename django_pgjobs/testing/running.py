"""Running jobs in the thread of a test.

It uses the worker's statements and code, in this thread and on the test's connection, so it
works inside a TestCase, whose transaction is invisible to other connections.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from asgiref.sync import sync_to_async
from django.db import DatabaseError, IntegrityError, transaction
from django.utils.asyncio import async_unsafe
from psycopg.pq import TransactionStatus

from django_pgjobs.choosing import Rooms
from django_pgjobs.compat import task_backends
from django_pgjobs.conf import get_conf
from django_pgjobs.control import rate_limits
from django_pgjobs.declaring.job_result import running_jobs_here
from django_pgjobs.declaring.lacking import declaring_paths
from django_pgjobs.declaring.registry import discover_tasks_once
from django_pgjobs.exceptions import PayloadError
from django_pgjobs.models import Job, RateState
from django_pgjobs.queries import batches, claims, dependencies, jobs, statistics, workers
from django_pgjobs.queries.claims import HEAD, ClaimedRow, Group, Lane, ReadyPlace, Segment
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.queries.errors import is_too_large
from django_pgjobs.queries.schedules import get_now
from django_pgjobs.queries.sessions import set_jit
from django_pgjobs.status import JobStatus
from django_pgjobs.values.bounds import is_whole
from django_pgjobs.values.words import counted
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.filling import filling_of
from django_pgjobs.worker.claiming.keyed_claim import KeyedClaim
from django_pgjobs.worker.claiming.outcome_statements import writings
from django_pgjobs.worker.claiming.refused import TOO_LARGE
from django_pgjobs.worker.running.calling import announce_finish, make_attempt, run_in_thread
from django_pgjobs.worker.running.housekeeping import (
    close_what_is_left,
    in_transaction_of_others,
)
from django_pgjobs.worker.running.outcome import Outcome
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.state import Options

LEASE_SECONDS = 3600.0
# A claim may only make what the next one needs: the row that it locks, if the tables were
# emptied, and the row of a rate limit's key that tokens are taken of.
MAX_TRIES = 3
ONE = Rooms(1, 1)


class TooManyAttempts(RuntimeError):
    """More attempts ran than the test allows."""


@async_unsafe("run_jobs() cannot be called in an async test. Write `await arun_jobs()`.")
def run_jobs(limit: int = 1_000, *, at_once: bool = True, raises: bool = False) -> int:
    """Run waiting jobs, and those they enqueue, until none is left; return the number of attempts.

    With *at_once* retries and scheduled jobs do not wait for their time, nor limited ones for
    tokens. Inside a transaction, such as that of a TestCase, jobs run in it; else what they do is
    committed. With *raises* the first job that fails for good ends the run: its failure is stored,
    and its exception raised.

    Raise RuntimeError above *limit* attempts, in case jobs enqueue each other without end,
    TypeError for a *limit* that is no whole number from 0, SynchronousOnlyOperation in async code,
    and ImportError if a tasks.py cannot be imported.
    """
    if not is_whole(limit) or limit < 0:
        raise TypeError(f"run_jobs() expected limit to be a whole number from 0, got {limit!r}.")
    discover_or_raise()
    with rate_limits_on_test_connection(waits=not at_once), running_jobs_here():
        return _run_jobs(limit, at_once, raises=raises)


def run_due(limit: int, *, before_time_counts: Callable[[], object]) -> int:
    """Run what may run now; the caller has prepared the thread as `run_jobs` does.

    *before_time_counts* is called before each look for what is due, and before each outcome is
    written.
    """
    return _run_jobs(limit, at_once=False, before_time_counts=before_time_counts)


def discover_or_raise() -> None:
    """Import the tasks of the project; raise ImportError if the settings say that all must be."""
    broken = discover_tasks_once()
    if broken and get_conf().BROKEN_TASK_MODULES == "stop":
        raise ImportError(f"{broken[0]}.") from broken[0].error


async def arun_jobs(limit: int = 1_000, *, at_once: bool = True, raises: bool = False) -> int:
    """Do as `run_jobs`, in an async test."""
    run = sync_to_async(run_jobs, thread_sensitive=True)
    return await run(limit, at_once=at_once, raises=raises)


@contextmanager
def rate_limits_on_test_connection(*, waits: bool = False) -> Iterator[None]:
    """Let `acquire` and `try_acquire` work on the test's own connection, where its rows are.

    Turns are given as usual; without *waits* nobody sleeps. For tests of code that takes
    tokens outside of a job; `run_jobs` does this by itself.
    """
    with rate_limits.on_django_connection(waits=waits):
        yield


def _too_many(limit: int, ran: list[tuple[Attempt, Outcome]]) -> str:
    said = f"run_jobs() expected at most {counted(limit, 'attempt')}, got more."
    if not ran:
        return said
    [(path, count)] = Counter(attempt.row.task_path for attempt, _ in ran).most_common(1)
    return (
        f"{said} Most are of {path}: {count}. For jobs that snooze for "
        "ever give at_once=False, which runs only what may run now; else a higher limit."
    )


def _run_jobs(
    limit: int,
    at_once: bool,
    *,
    before_time_counts: Callable[[], object] = lambda: None,
    raises: bool = False,
) -> int:
    ran: list[tuple[Attempt, Outcome]] = []
    # Looking through all modules takes longer than to run a job.
    declaring = declaring_paths()
    with _without_jit(), _registered() as worker_id:
        while not (raises and _failure_of(ran)):
            before_time_counts()
            # One for each job: what a job did may have closed the connection of the last.
            with job_cursor() as cursor:
                lanes = _ready_lanes_or_counted(cursor, at_once)
                if not lanes:
                    break
                if len(ran) >= limit:
                    raise TooManyAttempts(_too_many(limit, ran))
                claims_of_one = (
                    _claim_one(cursor, worker_id, lanes, declaring) for _ in range(MAX_TRIES)
                )
                rows = next(filter(None, claims_of_one), None)
            if rows is None:
                break
            ran += _run(rows[0], before_time_counts)
        before_time_counts()
        _record(ran)
    if raises and (failure := _failure_of(ran)):
        raise failure
    return len(ran)


def _failure_of(ran: list[tuple[Attempt, Outcome]]) -> BaseException | None:
    """Return why the last one failed for good, None if it did not."""
    has_failed = bool(ran) and ran[-1][1].status is JobStatus.FAILED
    return ran[-1][1].exception if has_failed else None


@contextmanager
def _without_jit() -> Iterator[None]:
    """Plan as workers do: compiling the claim can take a second, running it a millisecond."""
    with job_cursor() as cursor:
        before = set_jit(cursor, "off")
    try:
        yield
    except BaseException:
        with suppress(DatabaseError), job_cursor() as cursor:
            set_jit(cursor, before)
        raise
    with job_cursor() as cursor:
        set_jit(cursor, before)


@contextmanager
def _registered() -> Iterator[int]:
    row: workers.Registration = {
        "name": "run_jobs",
        "host": "test",
        "pid": os.getpid(),
        "version": "test",
        "slots": 1,
        "queues": None,
        "excluded_queues": [],
        "backends": list(task_backends.settings),
        "task_paths": [],
        "schedule_names": [],
        "token_id": None,
        "lease": LEASE_SECONDS,
        "quiet": False,
    }
    with job_cursor() as cursor:
        worker_id = workers.register_worker(cursor, row)
    try:
        yield worker_id
    except BaseException:
        with suppress(DatabaseError), job_cursor() as cursor:
            workers.end_worker(cursor, worker_id)
        raise
    with job_cursor() as cursor:
        workers.end_worker(cursor, worker_id)


def _ready_lanes(cursor: Cursor, at_once: bool) -> list[ReadyPlace]:
    if at_once:
        Job.objects.filter(status=JobStatus.READY, due_at__isnull=False).update(due_at=None)
    else:
        jobs.send_promotion(cursor, max_jobs=1_000)
        cursor.fetchall()
    claims.send_lane_listing(cursor)
    places = [ReadyPlace._make(row) for row in cursor.fetchall()]
    if at_once and any(place.urgency is not None for place in places):
        RateState.objects.all().delete()
    return places


def _claim_one(
    cursor: Cursor, worker_id: int, places: list[ReadyPlace], declaring: list[str]
) -> list[ClaimedRow]:
    taker = claims.Taker(
        worker_id=worker_id,
        worker_name="run_jobs",
        passed_over_paths=[],
        detailed=True,
        detailed_paths=[],
        declaring_paths=declaring,
    )
    # Outside of a TestCase a claim is a transaction, as a worker's is: a claim of jobs with keys or
    # of limited queues holds a row until its end.
    with transaction.atomic(using=job_database(), savepoint=False):
        return _claim_within(cursor, taker, places)


def _claim_within(
    cursor: Cursor, taker: claims.Taker, places: list[ReadyPlace]
) -> list[ClaimedRow]:
    asked_at = time.monotonic()
    boosts = {place.queue_name: place.boost for place in places}
    groups = [
        Group(p.backend, p.queue_name, p.urgency, p.is_async)
        for p in places
        if p.urgency is not None
    ]
    groups.sort(key=lambda group: group.urgency - boosts[group.queue_name])
    floors = {Lane(p.backend, p.queue_name, p.is_async): HEAD for p in places if p.urgency is None}
    if groups or any(place.boost or place.is_limited for place in places):
        claims.send_hold(cursor)
        cursor.fetchall()
        scope = claims.Scope(
            floors=floors,
            segments=[Segment(group) for group in groups],
            boosts=boosts,
            slots={},
            rooms=ONE,
            max_jobs=1,
        )
        claim = KeyedClaim(scope, taker)
        claim.send_heads(cursor)
        claim.choose(cursor.fetchall())
        claim.send_chosen(cursor)
        rows = cursor.fetchall()
        claim.send_spending(cursor)
    else:
        claims.send_claim(cursor, floors, rooms=ONE, max_jobs=1, taker=taker)
        rows = cursor.fetchall()
    return claims.claimed_rows(rows, asked_at)


def _ready_lanes_or_counted(cursor: Cursor, at_once: bool) -> list[ReadyPlace]:
    """Return where jobs are; if there are none, after batches were counted of which something is
    noted: what follows these may be ready.
    """
    while not (lanes := _ready_lanes(cursor, at_once)) and _settle_batches(cursor):
        pass
    return lanes


def _settle_batches(cursor: Cursor) -> bool:
    """Count what is noted of a page of batches; return False if nothing could be counted."""
    changed = batches.list_changed(cursor)
    if not changed:
        return False
    with transaction.atomic(using=job_database(), savepoint=False):
        settled = batches.settle(cursor, changed)
    missed = {each.batch_id for each in settled if each.is_missed}
    return any(each.goes_on for each in settled) or not missed >= set(changed)


def _record(ran: list[tuple[Attempt, Outcome]]) -> None:
    """Write statistics, as the recorder of a worker does."""
    if not ran:
        return
    with job_cursor() as cursor:
        tally, asked_at = Tally(), time.monotonic()
        tally.set_clock(get_now(cursor).timestamp(), asked_at)
        tally.note(ran)
        statistics.write_statistics(cursor, tally.take(is_last=True))


def _run(
    row: ClaimedRow, before_time_counts: Callable[[], object]
) -> list[tuple[Attempt, Outcome]]:
    """Run a claimed job, or give it what its task declares; return the attempt, if it was one."""
    options = _options()
    attempt = make_attempt(row, options)
    is_enclosed = bool(in_transaction_of_others())
    with _savepoints():
        outcome = filling_of(attempt) or run_in_thread(attempt, options)
    if not is_enclosed:
        # What it has left open, or broken, is not to be committed with its outcome, nor to fail it.
        close_what_is_left(attempt)
    if not outcome.stored:
        before_time_counts()
        with (
            _told_what_is_too_large(),
            transaction.atomic(using=job_database(), savepoint=False),
            job_cursor() as cursor,
        ):
            for writing in writings([(attempt, outcome)]):
                writing.send(cursor)
            dependencies.resolve_dependencies(cursor, [attempt.id])
            if row.batch_id is not None:
                batches.settle(cursor, [row.batch_id])
    announce_finish(attempt, outcome)
    return [(attempt, outcome)] if outcome.control is None else []


@contextmanager
def _told_what_is_too_large() -> Iterator[None]:
    """Raise PayloadError where a worker lets the job fail with the same text."""
    try:
        yield
    except IntegrityError as error:
        if isinstance(error.__cause__, psycopg.Error) and is_too_large(error.__cause__):
            raise PayloadError(TOO_LARGE) from error
        raise


@contextmanager
def _savepoints() -> Iterator[None]:
    """Keep the transactions of a TestCase usable when a task fails in the database."""
    savepoints = [(each, each.savepoint()) for each in in_transaction_of_others()]
    yield
    for connection, savepoint in savepoints:
        if savepoint is None:
            continue
        if connection.needs_rollback or _is_aborted(connection):
            connection.needs_rollback = False
            connection.savepoint_rollback(savepoint)
        connection.savepoint_commit(savepoint)


def _is_aborted(connection: Any) -> bool:
    return bool(
        connection.vendor == "postgresql"
        and connection.connection.info.transaction_status == TransactionStatus.INERROR
    )


def _options() -> Options:
    conf = get_conf()
    return Options(
        database=job_database(),
        backends=tuple(task_backends.settings),
        concurrency=1,
        async_concurrency=1,
        lease=LEASE_SECONDS,
        poll_interval=1.0,
        shutdown_timeout=0.0,
        timeout_grace=0.0,
        retention=None,
        failed_retention=None,
        max_attempts=conf.MAX_ATTEMPTS,
        max_losses=conf.MAX_LOSSES,
        max_payload_bytes=conf.MAX_PAYLOAD_BYTES,
        listen=False,
        # Its code will not be deployed while the test runs.
        unknown_fails=True,
    )
