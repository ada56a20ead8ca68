"""`result.wait()`: looking for the end of a job, and refusing where it could not come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from psycopg.pq import TransactionStatus

from django_pgjobs import JobResult, cancel, requeue, task
from django_pgjobs.compat import TaskResult, TaskResultDoesNotExist, TaskResultStatus
from django_pgjobs.declaring import job_result
from django_pgjobs.models import Job
from django_pgjobs.queries import jobs
from django_pgjobs.testing import arun_jobs, run_jobs
from tests import tasks
from tests.factories import get_job, make_running_job
from tests.worker.support import close_shared_thread

TRANSACTION = "expected no open transaction on database 'default' while waiting for job"


@task(max_attempts=1)
def wait_for(job_id: str) -> Any:
    """Wait for another job."""
    return tasks.add.get_result(job_id).wait().return_value


@task(max_attempts=1, takes_context=True)
def wait_for_itself(context: Any) -> None:
    """Wait for what comes after this."""
    context.task_result.wait()


@dataclass
class Clock:
    """Stands for `time`: who sleeps finds that something has happened, and the time is over."""

    now: float = 100.0
    gaps: list[float] = field(default_factory=list)
    events: dict[int, Callable[[], object]] = field(default_factory=dict)

    def monotonic(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let the time go by, and what is to happen in this sleep, from 1, happen."""
        assert connection.connection.info.transaction_status == TransactionStatus.IDLE
        assert len(self.gaps) < 1_000, "nobody ends this wait"
        self.gaps.append(seconds)
        self.now += seconds
        self.events.get(len(self.gaps), lambda: None)()


@pytest.fixture
def clock(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of those who wait."""
    made = Clock()
    monkeypatch.setattr(job_result, "time", made)
    return made


@pytest.fixture
def shared_thread(transactional_db: None) -> Iterator[None]:
    """Close the connection that async code leaves behind."""
    yield
    close_shared_thread()


def forget(result: JobResult) -> None:
    """Let the job be pruned."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_job WHERE id = %s", [int(result.id)])


def test_it_looks_until_the_job_has_ended_and_returns_the_result_refreshed(clock: Clock) -> None:
    result = tasks.add.enqueue(1, 2)
    clock.events[3] = run_jobs
    waited = result.wait(timeout=60)
    assert waited is result
    assert isinstance(result, TaskResult)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 3)
    assert (len(clock.gaps), result.attempts) == (3, 1)


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_failed_or_cancelled_job_ends_the_wait_and_raises_nothing(clock: Clock, end: str) -> None:
    result = tasks.fail_once.enqueue()
    clock.events[1] = run_jobs if end == "failed" else lambda: cancel(result)
    assert result.wait().status == TaskResultStatus.FAILED
    assert get_job(result.id).status == end
    assert len(result.errors) == (end == "failed")


def test_the_gaps_grow_and_the_last_look_is_when_the_time_is_over(clock: Clock) -> None:
    result = tasks.add.enqueue(1, 2)
    text = (
        f"^job {result.id} is still ready after 3 s. Job.objects.get\\(pk={result.id}\\)"
        f".explain\\(\\), or manage.py jobs explain {result.id}, says why.$"
    )
    with CaptureQueriesContext(connection) as queries, pytest.raises(TimeoutError, match=text):
        result.wait(timeout=timedelta(seconds=3))
    assert clock.gaps[:8] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
    assert max(clock.gaps) == 0.5
    assert sum(clock.gaps) == pytest.approx(3)
    assert len(queries) == len(clock.gaps) + 1


def test_without_a_timeout_it_waits_for_ever(clock: Clock) -> None:
    result = tasks.add.enqueue(1, 2)
    clock.events[500] = run_jobs
    assert result.wait().return_value == 3
    assert clock.gaps[-1] == 0.5


def test_a_running_job_is_named_so_and_no_time_is_one_look(clock: Clock) -> None:
    result = tasks.add.get_result(str(make_running_job().id))
    with (
        CaptureQueriesContext(connection) as queries,
        pytest.raises(TimeoutError, match="is still running after 0 s"),
    ):
        result.wait(0)
    assert (len(queries), clock.gaps) == (1, [])


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_a_timeout_that_is_none_is_refused(clock: Clock, timeout: Any) -> None:
    with pytest.raises(ValueError, match="expected timeout to be 0 seconds or more, and finite"):
        tasks.add.enqueue(1, 2).wait(timeout)


@pytest.mark.parametrize("timeout", ["1", True, [1]])
def test_a_timeout_of_another_type_is_refused(clock: Clock, timeout: Any) -> None:
    result = tasks.add.enqueue(1, 2)
    with pytest.raises(TypeError, match="expected timeout to be a number of seconds or a timede"):
        result.wait(timeout)
    with pytest.raises(TypeError, match="expected timeout to be a number"):
        asyncio.run(result.async_wait(timeout))


def test_a_job_that_ended_before_costs_two_statements(clock: Clock) -> None:
    result = tasks.add.enqueue(1, 2)
    run_jobs()
    with CaptureQueriesContext(connection) as queries:
        assert result.wait(0).return_value == 3
    assert (len(queries), clock.gaps) == (2, [])


def test_a_job_that_was_requeued_meanwhile_is_waited_for_again(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tasks.add.enqueue(1, 2)
    run_jobs()
    look = jobs.get_job_status

    def look_and_requeue(cursor: Any, job_id: int) -> str | None:
        status = look(cursor, job_id)
        if not clock.gaps:
            assert requeue(job_id)
        return status

    monkeypatch.setattr(jobs, "get_job_status", look_and_requeue)
    clock.events[2] = run_jobs
    assert result.wait().return_value == 3
    assert len(clock.gaps) == 2


def test_a_job_that_is_gone_does_not_exist(clock: Clock) -> None:
    result = tasks.add.enqueue(1, 2)
    clock.events[2] = lambda: forget(result)
    text = f"there is no job {result.id}: it was pruned or deleted, or the transaction"
    with pytest.raises(TaskResultDoesNotExist, match=text):
        result.wait()
    assert len(clock.gaps) == 2


def test_a_job_that_goes_between_look_and_refresh_does_not_exist(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tasks.add.enqueue(1, 2)
    forget(result)
    monkeypatch.setattr(jobs, "get_job_status", lambda cursor, job_id: "failed")
    with pytest.raises(TaskResultDoesNotExist, match=f"there is no job {result.id}: it was pruned"):
        result.wait()


@pytest.mark.parametrize("is_finished", [False, True])
def test_in_a_transaction_it_is_refused_whatever_the_job_does(
    clock: Clock, is_finished: bool
) -> None:
    """Else it would depend on how quick a worker is."""
    result = tasks.add.enqueue(1, 2)
    if is_finished:
        run_jobs()
    with (
        transaction.atomic(),
        CaptureQueriesContext(connection) as queries,
        pytest.raises(RuntimeError, match=f"{TRANSACTION} {result.id}, got one"),
    ):
        result.wait()
    assert (len(queries), clock.gaps) == (0, [])


def test_without_autocommit_it_is_refused_too(clock: Clock) -> None:
    result = tasks.add.enqueue(1, 2)
    transaction.set_autocommit(False)
    try:
        with pytest.raises(RuntimeError, match=TRANSACTION):
            result.wait()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_async_code_is_told_the_name_of_the_twin(clock: Clock) -> None:
    result = tasks.add.enqueue(1, 2)

    async def wait() -> None:
        result.wait()

    with pytest.raises(SynchronousOnlyOperation, match=r"Write `await result.async_wait\(\)`"):
        asyncio.run(wait())


def test_async_code_waits_on_the_event_loop(shared_thread: None) -> None:
    async def wait() -> JobResult:
        result = await tasks.add.aenqueue(1, 2)
        with pytest.raises(TimeoutError, match=r"is still ready after 0\.05 s"):
            await result.async_wait(timeout=0.05)
        waiting = asyncio.create_task(result.async_wait(60))
        await arun_jobs()
        return await waiting

    assert asyncio.run(wait()).return_value == 3


def test_an_async_wait_can_be_cancelled(shared_thread: None) -> None:
    async def wait() -> None:
        result = await tasks.add.aenqueue(1, 2)
        await asyncio.wait_for(result.async_wait(), 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(wait())


def test_in_run_jobs_no_job_waits_for_another(clock: Clock) -> None:
    """It would wait for ever: run_jobs() runs one at a time."""
    first = tasks.add.using(run_after=timedelta(hours=1)).enqueue(1, 2)
    waiting = wait_for.enqueue(first.id)
    assert run_jobs(at_once=False) == 1
    [error] = get_job(waiting.id).errors
    assert f"job {first.id} is ready, and run_jobs() runs one job after the other" in str(error)
    assert run_jobs() == 1
    after = wait_for.enqueue(first.id)
    run_jobs()
    assert after.wait().return_value == 3


def test_a_job_does_not_wait_for_itself(clock: Clock) -> None:
    result = wait_for_itself.enqueue()
    run_jobs()
    [error] = result.wait().errors
    assert f"job {result.id} waits for its own end, which would never come" in error.traceback


class TestInsideATestCase(TestCase):
    """As a project writes it."""

    def test_a_job_that_waits_is_refused_by_the_name_of_run_jobs(self) -> None:
        result = tasks.add.enqueue(1, 2)
        with pytest.raises(RuntimeError, match=r"is ready, .* Call run_jobs\(\) of "):
            result.wait(5)
        assert Job.objects.count() == 1

    def test_a_job_that_has_run_is_there(self) -> None:
        result = tasks.add.enqueue(1, 2)
        run_jobs()
        assert result.wait(5).return_value == 3

    def test_a_transaction_of_the_project_is_refused_as_in_production(self) -> None:
        result = tasks.add.enqueue(1, 2)
        run_jobs()
        with transaction.atomic(), pytest.raises(RuntimeError, match=TRANSACTION):
            result.wait(5)

    async def test_async_tests_are_told_the_same(self) -> None:
        result = await tasks.add.aenqueue(1, 2)
        with pytest.raises(RuntimeError, match=r"is ready, .* Call run_jobs\(\) of "):
            await result.async_wait(5)
        await arun_jobs()
        assert (await result.async_wait(5)).return_value == 3
