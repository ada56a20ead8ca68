"""Jobs that were claimed without what their tasks declare: they get it instead of running.

`enqueue()` writes keys, limits, queue and priority into the row; plain SQL may write a row without
them. Such a job is claimed like any other, because the table cannot tell which tasks declare
something. The worker, whose code does know, then writes what is missing and gives the job back, in
one statement for all of a claim; nothing has run. Those whose tasks declare nothing run at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.remote import is_remote
from django_pgjobs.declaring.tasks import declares_control
from django_pgjobs.enqueueing.filling import filled_in
from django_pgjobs.queries.errors import is_of_the_moment
from django_pgjobs.queries.filling import control_of
from django_pgjobs.values.payload import decode_arguments
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.calling import task_result
from django_pgjobs.worker.running.housekeeping import close_connections
from django_pgjobs.worker.running.outcome import (
    Kind,
    Outcome,
    describe,
    filled,
    left_to_others,
    of_trouble,
)
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

UNUSABLE = "failed: what its task declares cannot be worked out for these arguments"


def filling_of(attempt: Attempt) -> Outcome | None:
    """Return the outcome that gives a job what its task declares, None if it has all of it.

    The job fails, without another attempt, if a key cannot be made of its arguments; a temporary
    error of a database counts as a failed attempt.
    """
    task = _declaring_task(attempt)
    if task is None:
        return None
    written = control_of(attempt.row)
    try:
        args, kwargs = decode_arguments(attempt.row.args, attempt.row.kwargs)
        control = filled_in(task, written, args, kwargs)
    except BaseException as error:  # a key may be a function of the project
        return _of_error(attempt, error)
    if control == written and written.rate_limit_keys is None:
        return None
    # The claim took no tokens for a row that names its rate limits: it could not tell what the row
    # lacks.
    return filled(control)


def _declaring_task(attempt: Attempt) -> AnyTask | None:
    """Return the task of a job whose row may lack what the task declares, else None."""
    task = attempt.task
    if attempt.row.undeclared is None or task is None or not declares_control(task):
        return None
    return task


def _of_error(attempt: Attempt, error: BaseException) -> Outcome:
    """Return the outcome of a job whose key raised *error*; looking at that may raise, too."""
    try:
        if is_of_the_moment(error):
            return of_trouble(attempt, error, lambda: task_result(attempt))
    except BaseException:
        logger.of(attempt).warning("its exception cannot be judged; the job fails", exc_info=True)
    entry = describe(attempt, error)
    return Outcome(Kind.FAIL, error=entry, note=UNUSABLE, exception=error)


def split(
    attempts: Iterable[Attempt],
    on_filling: Callable[[Attempt, Outcome], object],
    *,
    on_next: Callable[[], None],
) -> list[Attempt]:
    """Return the attempts that may begin, and hand over the others with their outcomes.

    *on_next* is called before each job that gets keys: a function of the project may take long.
    """
    ready = []
    for attempt in attempts:
        if is_remote(attempt.task):
            # Its module was loaded later: a claim leaves out the remote tasks that are known when
            # it is sent, and the next one this task.
            on_filling(attempt, left_to_others())
            continue
        outcome = None
        if _declaring_task(attempt) is not None:
            on_next()
            # As if it ran: if the worker stands still or dies here, this job counts as lost.
            attempt.started_at = time.monotonic()
            outcome = filling_of(attempt)
            attempt.started_at = 0.0
            # Nobody else closes what a function of the project has opened in this thread.
            close_connections()
        if outcome is None:
            ready.append(attempt)
        else:
            on_filling(attempt, outcome)
    return ready
