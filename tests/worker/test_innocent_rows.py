"""No row is blamed for what the server refuses because of something else."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from psycopg import sql

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.jobs import OldJobs, find_old_job, prune_jobs
from django_pgjobs.worker.turns import refusals as refusals_module
from django_pgjobs.worker.turns.careful import in_pages
from django_pgjobs.worker.turns.refusals import LOCKED_SECONDS, Refusals
from tests.factories import count_jobs, get_job, make_jobs
from tests.helpers import wait_until
from tests.worker import tasks as gate_tasks
from tests.worker.support import Gate, ThreadedWorker
from tests.worker.test_refused_rows import Refuse, refuse, starts  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
ADD = "tests.tasks.add"


def test_no_row_is_blamed_for_an_error_that_ends_before_it_is_looked_for(
    own: OwnConnection,
) -> None:
    is_over, blamed = [False], list[int]()

    def take(size: int, passed_over: list[int]) -> list[int]:
        if not is_over[0]:
            raise psycopg.errors.CheckViolation("not of a row")
        return []

    def find(passed_over: list[int]) -> list[int]:
        is_over[0] = True
        return [1]

    pages = in_pages(
        own, take, size=9, find=find, on_refused=lambda row_id, error: blamed.append(row_id)
    )
    assert list(pages) == [[]]
    assert not blamed


def test_nobody_comes_between_the_row_that_is_found_and_what_is_done_with_it(
    own: OwnConnection, open_own: Callable[[], OwnConnection]
) -> None:
    """Else another worker might hold it meanwhile, and what is refused is the next one."""
    old = sql.SQL("now() - interval '1 h'")
    jobs = make_jobs(3, ADD, status="successful", finished_at=old)
    of_age = OldJobs("successful", 1.0)
    others = open_own()
    seen, blamed = list[list[int]](), list[int]()

    def prune(size: int, passed_over: list[int]) -> range:
        if not passed_over:
            if size == 1:
                with others.cursor() as cursor:
                    seen.append(find_old_job(cursor, of_age, passed_over=[]))
            raise psycopg.errors.CheckViolation("refused")
        with own.cursor() as cursor:
            return range(prune_jobs(cursor, of_age, max_jobs=size, passed_over=passed_over))

    def find(passed_over: list[int]) -> list[int]:
        with own.cursor() as cursor:
            return find_old_job(cursor, of_age, passed_over=passed_over)

    pages = in_pages(
        own, prune, size=9, find=find, on_refused=lambda row_id, error: blamed.append(row_id)
    )
    assert [len(page) for page in pages] == [1, 1]
    # It is asked twice.
    assert (seen, blamed) == ([[jobs[1]]] * 2, [jobs[0]])


def test_a_row_that_comes_before_the_one_that_is_found_is_blamed_itself(
    own: OwnConnection,
) -> None:
    """As a better job that is committed between the two statements."""
    waiting, blamed = [2, 3], list[int]()

    def take(size: int, passed_over: list[int]) -> list[int]:
        if 1 not in passed_over:
            if size == 1 and 1 not in waiting:
                waiting.insert(0, 1)
            raise psycopg.errors.CheckViolation("refused")
        return [row for row in waiting if row not in passed_over]

    def find(passed_over: list[int]) -> list[int]:
        return [row for row in waiting if row not in passed_over][:1]

    pages = in_pages(
        own, take, size=9, find=find, on_refused=lambda row_id, error: blamed.append(row_id)
    )
    assert next(iter(pages)) == [2, 3]
    assert blamed == [1]


@pytest.mark.slow
def test_a_job_whose_change_waited_for_a_lock_is_left_alone_for_a_moment_only(
    own: OwnConnection,
) -> None:
    locked = [True]

    def act(size: int, passed_over: list[int]) -> list[int]:
        if locked[0] and not passed_over:
            raise psycopg.errors.LockNotAvailable("of a table that a trigger writes")
        return []

    def left_alone() -> list[int]:
        pages = refusals.in_pages(own, act, size=1, find=lambda _: {7: ADD})
        assert list(pages) == [[]]
        return refusals.passed_over()

    refusals = Refusals()
    assert left_alone() == [7]
    assert left_alone() == [7]  # it is not asked for
    wait_until(lambda: not refusals.passed_over(), timeout=2 * LOCKED_SECONDS)
    locked[0] = False
    assert left_alone() == []


def rename_column(before: str, after: str) -> None:
    """Rename a column of jobs, once more if that and a worker waited for each other."""
    for _ in range(20):
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"ALTER TABLE pgjobs_job RENAME COLUMN {before} TO {after}")
        except OperationalError as error:
            if not isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                raise
        else:
            return
    raise AssertionError(f"workers never let go of the table to rename {before}")


@contextlib.contextmanager
def lacking(column: str) -> Iterator[None]:
    """Let jobs have no such column, as if a migration were still to come."""
    rename_column(column, "hidden")
    try:
        yield
    finally:
        rename_column("hidden", column)


def test_no_job_is_passed_over_for_what_the_schema_lacks(
    start_thread: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start_thread(poll_interval=0.1)
    with lacking("max_attempts"):
        make_jobs(5, ADD)
        wait_until(lambda: "statement failed: column" in caplog.text)
    wait_until(lambda: count_jobs(status="successful") == 5)
    assert "passed over" not in caplog.text


def test_an_outcome_waits_for_what_the_schema_lacks(
    start_thread: Start, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not become a failure."""
    caplog.set_level(logging.INFO)
    start_thread()
    job = gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    with lacking("started_at"):
        gate.open()
        wait_until(lambda: "its outcome waits" in caplog.text)
    wait_until(lambda: get_job(job.id).status not in ("ready", "running"))
    assert get_job(job.id).status == "successful"


@pytest.mark.slow
@pytest.mark.parametrize("keys", [{}, {"concurrency_key": "k", "concurrency_limit": 50}])
def test_several_workers_blame_the_same_jobs(
    start_thread: Start,
    refuse: Refuse,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
    keys: dict[str, Any],
) -> None:
    """Each lets go of refused jobs that the others have read past, and of the right to claim."""
    jobs = make_jobs(60, ADD, **keys)
    refuse(starts(*jobs[:6]))
    for number in range(4):
        start_thread(poll_interval=0.05, name=f"test:{number}")
    wait_until(lambda: count_jobs(status="successful") == 54)
    said = {record.getMessage().split()[0] for record in caplog.records if record.levelno >= 40}
    assert said <= {f"job={job_id}" for job_id in jobs[:6]}


def test_a_log_that_stands_still_keeps_no_other_thread_from_leaving_jobs_alone(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = Refusals()
    logged: list[tuple[bool, list[int]]] = []

    def log(*_: Any) -> None:
        logged.append((refusals._lock.locked(), refusals.passed_over()))

    monkeypatch.setattr("django_pgjobs.worker.turns.refusals.logger.log", log)

    def take(size: int, passed_over: list[int]) -> list[int]:
        if not passed_over:
            raise psycopg.errors.RaiseException("refused")
        return []

    assert list(refusals.in_pages(own, take, size=1, find=lambda _: {7: "task"})) == [[]]
    assert logged == [(False, [7])]


def test_what_is_known_of_tasks_that_are_not_here_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody who may enqueue can name ever other tasks."""
    monkeypatch.setattr(refusals_module, "MOST_KNOWN", 3)
    refusals = Refusals()
    refusals.note_unknown(["gone.a", "gone.b"])
    refusals.note_unknown(["gone.c", "gone.d"])
    assert refusals.passed_over_paths() == ["gone.b", "gone.c", "gone.d"]


def test_tasks_that_are_not_left_alone_any_more_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals = Refusals()
    with monkeypatch.context() as past:
        past.setattr(refusals_module, "UNKNOWN_SECONDS", -1.0)
        refusals.note_unknown(["gone.a"])
    refusals.note_unknown(["gone.b"])
    assert refusals.passed_over_paths() == [*refusals._paths] == ["gone.b"]
