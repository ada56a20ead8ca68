"""Jobs that wait for other jobs: `task.using(after=[...])`.

A waiting job is `ready` with a *hold*, so that no worker claims it, and has a row in
`pgjobs_dependency` for every predecessor it still waits for. The statement that finishes a
predecessor removes that row and, with the last one, the hold. A predecessor that finishes
between the enqueue and its commit is noticed by the commit (migrations/sql/0001/recheck.sql).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from django.db import connections, transaction

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.enqueueing.selecting import IN_PYTHON
from django_pgjobs.queries import dependencies
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.status import FINISHED, AfterFailure, JobStatus

# Makes new jobs, given by their ids, wait.
HoldBack = Callable[[list[int]], None]
# How many ids of missing jobs an error names.
NAMED = 10


def waiting(task: AnyTask) -> AbstractContextManager[HoldBack]:
    """Give the function that makes new jobs of *task* wait, in a block that inserts them.

    The block is atomic if there is anything to wait for: no worker sees a job before it
    waits. Raise ValueError if a predecessor does not exist, before anything is written.
    """
    if not isinstance(task, Task) or not task.after:
        return nullcontext(_wait_for_nothing)
    with job_cursor() as cursor:
        statuses = dependencies.check_predecessors(cursor, task.after)
    refuse_missing(task, statuses)
    awaited = {job_id: s for job_id, s in statuses.items() if _is_awaited(s, task.after_failure)}
    return _atomic_wait(awaited, task.after_failure) if awaited else nullcontext(_wait_for_nothing)


def refuse_waiting(task: AnyTask) -> None:
    """Raise TypeError if jobs of *task* are to wait: the caller does not learn their ids."""
    if isinstance(task, Task) and task.after:
        raise TypeError(
            f"jobs of the rows of a QuerySet cannot wait for others (after=). {IN_PYTHON}"
        )


def _wait_for_nothing(ids: list[int]) -> None:
    pass


def refuse_missing(task: Task, found: Container[int]) -> None:
    """Raise ValueError that names the predecessors of *task* which were not *found*."""
    missing = [job_id for job_id in task.after if job_id not in found]
    if missing:
        named = ", ".join(map(str, missing[:NAMED])) + (", ..." if len(missing) > NAMED else "")
        raise ValueError(
            f"{task.module_path} expected after to name jobs that exist, got {named}. "
            "A finished job goes when its retention is over."
        )


def _is_awaited(status: str, after_failure: str) -> bool:
    """Is there anything to wait for, or to do, for a predecessor of that status?"""
    is_over = status == JobStatus.SUCCESSFUL or (
        status in FINISHED and after_failure == AfterFailure.RUN
    )
    return not is_over


@contextmanager
def _atomic_wait(awaited: dict[int, str], after_failure: str) -> Iterator[HoldBack]:
    database = job_database()
    failed = [job_id for job_id, status in awaited.items() if status in FINISHED]

    def hold_back(ids: list[int]) -> None:
        if not ids:
            return
        with connections[database].cursor() as cursor:
            dependencies.add_dependencies(cursor, ids, sorted(awaited), after_failure=after_failure)
            if failed:
                dependencies.resolve_dependencies(cursor, failed)

    # The caller's transaction is enough; a savepoint would cost a round trip.
    is_atomic = connections[database].in_atomic_block
    with nullcontext() if is_atomic else transaction.atomic(using=database):
        yield hold_back
