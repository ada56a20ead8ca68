"""Running one attempt: resolve, decode, call, and say what it came to.

Nothing escapes from here: whatever a row holds or a task does, the result is an Outcome.
"""

from __future__ import annotations

import contextvars
import json
import time
from contextlib import suppress
from typing import Any, NamedTuple

from django.db import DatabaseError, DataError, OperationalError, connections, transaction

from django_pgjobs.compat import AnyResult, AnyTask, TaskContext, task_backends
from django_pgjobs.context import enter_job
from django_pgjobs.control import lifecycle
from django_pgjobs.declaring.attempts import attempts_of
from django_pgjobs.declaring.registry import find_task
from django_pgjobs.declaring.tasks import Task, is_async
from django_pgjobs.exceptions import (
    ClaimLost,
    DatabaseAway,
    JobExpired,
    JobInterrupt,
    JobTimeout,
    PayloadError,
    TokensTooOld,
    UnknownTask,
    WorkerLost,
)
from django_pgjobs.queries import batches, claims, dependencies, jobs
from django_pgjobs.queries.claim_details import row_of_claim
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.queries.errors import is_of_the_moment
from django_pgjobs.queries.sessions import takes_no_writes, usage_of
from django_pgjobs.results import result_of_row
from django_pgjobs.signals import has_receivers, task_finished, task_started
from django_pgjobs.status import JobStatus
from django_pgjobs.values.moments import exact_duration
from django_pgjobs.values.payload import decode_arguments, referred_batches
from django_pgjobs.values.words import counted
from django_pgjobs.worker.attempt import HOARD_SECONDS, Attempt
from django_pgjobs.worker.reports import write_last
from django_pgjobs.worker.running.forks import leave_if_forked
from django_pgjobs.worker.running.gathering import gather_results
from django_pgjobs.worker.running.housekeeping import clean_connections, in_transaction_of_others
from django_pgjobs.worker.running.outcome import (
    Kind,
    Outcome,
    describe,
    of_exception,
    success,
    what_went_wrong,
)
from django_pgjobs.worker.running.traced import begin_trace, end_trace
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import Options

logger = get_logger(__name__)


def make_attempt(row: claims.ClaimedRow, options: Options) -> Attempt:
    """Return the attempt for a claimed row; its task is None if this process has none."""
    task: AnyTask | None = None
    with suppress(UnknownTask):
        task = find_task(row.task_path)
    most = row.max_attempts
    if most is None:
        most = options.max_attempts if task is None else attempts_of(task, row.backend)
    # An attempt that was lost with its worker is not held against the task.
    return Attempt(row, task, most + row.lost_count, is_async=task is not None and is_async(task))


def timeout_of(attempt: Attempt) -> float | None:
    """Return the seconds the attempt may take."""
    if attempt.row.timeout is not None:
        return attempt.row.timeout
    return attempt.task.timeout if isinstance(attempt.task, Task) else None


def took_too_long(timeout: float) -> str:
    """Return the message of an attempt that took longer than *timeout* seconds."""
    return f"the attempt took longer than {exact_duration(timeout)}."


def needs_reset(attempt: Attempt, outcome: Outcome) -> bool:
    """May the attempt have left something in its sessions?

    One that failed may have been stopped between a lock and its unlocking, whatever its task
    promises.
    """
    task = attempt.task
    return not isinstance(task, Task) or task.resets_session or outcome.kind is not Kind.DONE


class TaskCall(NamedTuple):
    """A task and what to call it with."""

    task: AnyTask
    args: list[Any]
    kwargs: dict[str, Any]


def prepare(attempt: Attempt) -> TaskCall:
    """Return the call of an attempt; raise what makes it impossible."""
    _check_expiry(attempt)
    if time.monotonic() - attempt.claimed_at > HOARD_SECONDS and attempt.takes_tokens:
        raise TokensTooOld
    task = attempt.task or find_task(attempt.row.task_path)
    if attempt.attempt > attempt.max_attempts:
        raise WorkerLost(f"no outcome of {counted(attempt.max_attempts, 'attempt')}.")
    _check_losses(attempt.row, task)
    if _is_atomic(task):
        _connect()
    args, kwargs = decode_arguments(attempt.row.args, attempt.row.kwargs)
    if attempt.batch_id is not None and reads_results(attempt):
        gathered = gather_results(referred_batches(attempt.row.args))
        args[: len(gathered)] = gathered
    if task.takes_context:
        args.insert(0, TaskContext(task_result=task_result(attempt)))
    # The database may have been asked.
    _check_expiry(attempt)
    return TaskCall(task, args, kwargs)


def _is_atomic(task: AnyTask) -> bool:
    return isinstance(task, Task) and task.atomic


def _connect() -> None:
    """Let there be a connection for the transaction of a job; raise DatabaseAway if there is none.

    Before anybody is told that the job begins.
    """
    connection = connections[job_database()]
    try:
        connection.ensure_connection()
    except OperationalError as error:
        raise DatabaseAway(" ".join(str(error).split())) from error
    if not connection.in_atomic_block and takes_no_writes(connection.connection):
        # The next job of the thread is to get another one.
        usage_of(connection.connection).is_stale = True
        raise DatabaseAway("the session takes no writes")


def _check_expiry(attempt: Attempt) -> None:
    if time.monotonic() >= attempt.expires:
        raise JobExpired


def reads_results(attempt: Attempt) -> bool:
    """Are the first arguments of a job of a batch the results of batches, to be read here?"""
    return attempt.row.args.startswith("{")


def _check_losses(row: claims.ClaimedRow, task: AnyTask) -> None:
    # The rescue knows the row's limit only, and allows three times as many losses to jobs that were
    # lost together. A limit that the task declares and the row does not give is kept here, whether
    # others were lost with it or not.
    most = task.max_losses if isinstance(task, Task) else None
    if row.max_losses is not None:
        most = row.max_losses * 3 if row.max_losses > 1 else 1
    if most is not None and row.lost_count >= most:
        raise WorkerLost(f"workers were lost with {counted(row.lost_count, 'attempt')}.")


def run_in_thread(attempt: Attempt, options: Options) -> Outcome:
    """Run an attempt in this thread and return its outcome."""
    return contextvars.copy_context().run(_run_in_context, attempt, options)


def _run_in_context(attempt: Attempt, options: Options) -> Outcome:
    outcome: Outcome | None = None
    trace = begin_trace(attempt)
    attempt.started_at = time.monotonic()
    try:
        try:
            call = prepare(attempt)
            announce_start(attempt)
            enter_job(attempt)
            attempt.arm()
            outcome = _call(attempt, call, options)
        except BaseException as error:
            outcome = failure(attempt, error, options)
        attempt.disarm()
    except JobInterrupt as interrupt:
        # It arrived while the outcome was made; an outcome that was ready before stands.
        attempt.disarm()
        outcome = outcome or failure(attempt, interrupt, options)
    settle(attempt, outcome)
    end_trace(trace, outcome)
    try:
        return outcome
    finally:
        # This frame is in the traceback of its exception: a circle.
        del outcome


def _call(attempt: Attempt, call: TaskCall, options: Options) -> Outcome:
    if not _is_atomic(call.task):
        return success(_value_of(attempt, call), options.max_payload_bytes)
    database = job_database()
    outcome: Outcome | None = None
    # After receivers were told it may be closed again, or back in its pool.
    _connect()
    try:
        with transaction.atomic(using=database):
            outcome = _write_success(attempt, call, options, database)
    except (DatabaseError, JobInterrupt):
        # Its success is written, and may be committed.
        attempt.in_doubt = outcome is not None
        raise
    except BaseException:
        if outcome is None:
            raise
        # It is written and committed, so this is of a hook that the task left for then.
        logger.of(attempt).exception("the job is done; a hook of on_commit raised")
    outcome.stored = True
    return outcome


def _write_success(attempt: Attempt, call: TaskCall, options: Options, database: str) -> Outcome:
    """Run the task, and write its outcome in the open transaction, as the last that it does."""
    outcome = success(_value_of(attempt, call), options.max_payload_bytes)
    duration = time.monotonic() - attempt.started_at
    done = jobs.Success(
        id=attempt.id, claim=attempt.claim, result=outcome.result, age=0.0, duration=duration
    )
    write_last(attempt, database)
    with connections[database].cursor() as cursor:
        batch_id = attempt.row.batch_id
        (jobs if batch_id is None else batches).send_successes(cursor, [done])
        if not cursor.fetchall():
            raise ClaimLost(f"job {attempt.id} belongs to another attempt by now.")
        dependencies.resolve_dependencies(cursor, [attempt.id])
        if batch_id is not None:
            outcome.leaves_batch = _leaves(batch_id, database)
    return outcome


def _leaves(batch_id: int, database: str) -> bool:
    """Count the batch of a job that is done; return whether something is left for the pump.

    That is what another transaction holds, and what cannot be counted, which is no fault of the
    job's.
    """
    try:
        with transaction.atomic(using=database), connections[database].cursor() as cursor:
            return batches.is_left(cursor, [batch_id])
    except DatabaseError as error:
        if is_of_the_moment(error) or connections[database].needs_rollback:
            raise
        return True


def _value_of(attempt: Attempt, call: TaskCall) -> Any:
    try:
        return call.task.call(*call.args, **call.kwargs)
    finally:
        leave_if_forked(attempt.process)


def failure(attempt: Attempt, error: BaseException, options: Options) -> Outcome:
    """Return the outcome of an attempt that raised *error*; looking at that may raise, too."""
    timeout, wrong = timeout_of(attempt), what_went_wrong(error)
    if isinstance(wrong, JobTimeout) and not wrong.args and timeout is not None:
        # The interpreter raises it without words.
        wrong.args = (took_too_long(timeout),)
    try:
        return of_exception(
            attempt,
            error,
            lambda: task_result(attempt),
            unknown_fails=options.unknown_fails,
        )
    except JobInterrupt:
        raise
    except BaseException:
        logger.of(attempt).warning("its exception cannot be judged; the job fails", exc_info=True)
        return Outcome(Kind.FAIL, error=describe(attempt, error), exception=error)


def settle(attempt: Attempt, outcome: Outcome) -> None:
    """Note when the attempt ended and how long it took."""
    outcome.ended_at = time.monotonic()
    outcome.duration = outcome.ended_at - attempt.started_at if attempt.started_at else 0.0


def announce_start(attempt: Attempt) -> None:
    """Send task_started; a receiver that raises is logged and changes nothing."""
    if attempt.task is not None and has_receivers(task_started):
        is_nested = bool(in_transaction_of_others())
        result = task_result(attempt)
        try:
            send_to_receivers(task_started, attempt, result)
        except BaseException:
            # A receiver may exit, and so may a log handler to which Django reports one that raised.
            logger.of(attempt).exception("task_started was not sent to all receivers")
        if not is_nested and not attempt.is_async:
            # In a transaction that a receiver left open, nothing of the job would be committed.
            # Async jobs share their connection, which is not for one of them to clean.
            clean_connections(attempt)


def wants_announcement(outcome: Outcome) -> bool:
    """Is the outcome final, and is anybody listening?"""
    failed = outcome.kind is not Kind.DONE
    return outcome.status is not None and has_receivers(task_finished, failed=failed)


def find_end(attempt: Attempt, outcome: Outcome) -> Outcome | None:
    """Return what the attempt has stored of its end without an answer, None if that is nothing.

    That is *outcome*, or the success of an atomic job.
    """
    try:
        with job_cursor() as cursor:
            status = jobs.find_end(cursor, attempt.id, attempt.claim)
    except BaseException:  # what Django calls for a new connection may exit
        logger.of(attempt).exception("it is not known whether it has ended its job")
        return None
    if status == JobStatus.SUCCESSFUL and outcome.status != status:
        outcome = Outcome(Kind.DONE, ended_at=outcome.ended_at, duration=outcome.duration)
    if status is None or outcome.status != status:
        return None
    logger.of(attempt).warning("it had ended its job as %s; the answer was lost", status)
    return outcome


def announce_finish(attempt: Attempt, outcome: Outcome) -> None:
    """Send task_finished for a stored outcome; receivers that raise are logged."""
    if not wants_announcement(outcome):
        return
    try:
        row = lifecycle.get_row(attempt.id, backend=attempt.row.backend)
        if row is None:
            return
        result = result_of_row(row, attempt.row.backend)
        if outcome.exception is None:
            send_to_receivers(task_finished, attempt, result)
            return
        # Receivers such as Django's own log what sys.exc_info() says.
        try:
            raise outcome.exception
        except BaseException:
            send_to_receivers(task_finished, attempt, result)
    except BaseException:  # a receiver may exit
        logger.of(attempt).exception("task_finished could not be sent")


def send_to_receivers(signal: Any, attempt: Attempt, result: AnyResult) -> None:
    """Send one of django.tasks' signals with the backend's class as sender, robustly."""
    sender = type(task_backends[attempt.row.backend])
    try:
        responses = signal.send_robust(sender, task_result=result)
    finally:
        leave_if_forked(attempt.process)
    for receiver, response in responses:
        if isinstance(response, Exception):
            logger.of(attempt).error("receiver %r raised %r", receiver, response, exc_info=response)


def task_result(attempt: Attempt) -> AnyResult:
    """Return the running job as django.tasks shows it; raise PayloadError if it cannot be read."""
    row = attempt.row
    try:
        if row.detail is None:
            stored = lifecycle.get_row(row.id, backend=row.backend)
        else:
            stored = row_of_claim(row, json.loads(row.detail))
        if stored is not None:
            return result_of_row(stored, row.backend)
    except (ValueError, OverflowError, RecursionError, DataError) as error:
        # A time beyond the year 9999, say.
        raise PayloadError(f"the stored row of job {row.id} cannot be read: {error}") from error
    raise PayloadError(f"job {row.id} is not in the table any more.")
