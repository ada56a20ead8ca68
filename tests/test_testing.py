"""`run_jobs()`: jobs in the tests of a project, inside the transaction of a TestCase."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from django.test.utils import CaptureQueriesContext

from django_pgjobs import Discard, Retry, Snooze, acancel, current_job, signals, task
from django_pgjobs.compat import TASKS_PACKAGE, TaskResultStatus, task_finished, task_started
from django_pgjobs.models import Job, QueueSettings, RateLimit, Worker
from django_pgjobs.testing import arun_jobs, run_jobs
from tests import tasks
from tests.factories import count_jobs, get_job, make_job
from tests.models import Effect

pytestmark = pytest.mark.django_db


@task
def enqueue_more(depth: int) -> None:
    """Enqueue another one, *depth* times."""
    Effect.objects.create(key=f"depth {depth}")
    if depth:
        enqueue_more.enqueue(depth - 1)


@task
def enqueue_for_ever() -> None:
    """Never come to an end."""
    enqueue_for_ever.enqueue()


@task(max_attempts=2, backoff=[3600])
def break_a_constraint() -> None:
    """Fail in the database, which aborts the transaction that is open there."""
    Effect.objects.create(key="before the mistake")
    Effect.objects.create(key=None)


@task(max_attempts=1)
def divide_in_sql() -> None:
    """Abort the transaction in a way that Django does not notice."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


@task
def ask_for_jit() -> str:
    """Return whether statements are compiled."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW jit")
        [value] = cursor.fetchone()
    return str(value)


@task
def steer(how: str) -> str:
    """Steer at the first run, return at the second."""
    if Effect.objects.filter(key=how).exists():
        return f"attempt {current_job().attempt}"
    Effect.objects.create(key=how)
    raise {"retry": Retry(after=60), "snooze": Snooze(60), "discard": Discard("no")}[how]


@task
def leave_by(name: str) -> None:
    """Raise what ends a process."""
    raise {"exit": SystemExit, "interrupt": KeyboardInterrupt}[name]


class TestInsideATestCase(TestCase):
    """As a project writes it."""

    def test_jobs_see_the_data_of_the_test_and_the_test_sees_theirs(self) -> None:
        Effect.objects.create(key="of the test")
        result = tasks.record.enqueue("of the job")
        assert run_jobs() == 1
        effect = Effect.objects.get(key="of the job")
        assert (effect.job_id, effect.attempt) == (int(result.id), 1)
        result.refresh()
        assert result.status == TaskResultStatus.SUCCESSFUL
        assert connection.in_atomic_block

    def test_nothing_is_left_for_the_next_test(self) -> None:
        assert (Job.objects.count(), Effect.objects.count()) == (0, 0)
        tasks.record.enqueue("x")
        run_jobs()

    test_nothing_is_left_for_the_other_test = test_nothing_is_left_for_the_next_test

    def test_callbacks_of_the_commit_may_enqueue(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            transaction.on_commit(lambda: tasks.record.enqueue("later"))
            assert run_jobs() == 0
        assert run_jobs() == 1

    def test_a_task_that_fails_in_the_database_does_not_end_the_test(self) -> None:
        result = break_a_constraint.enqueue()
        other = tasks.add.enqueue(1, 2)
        assert run_jobs() == 3
        result.refresh()
        other.refresh()
        assert (result.status, len(result.errors)) == (TaskResultStatus.FAILED, 2)
        assert "IntegrityError" in result.errors[0].exception_class_path
        assert other.return_value == 3

    def test_a_failure_that_only_the_server_knows_of_does_not_end_the_test(self) -> None:
        results = [divide_in_sql.enqueue(), tasks.add.enqueue(1, 2)]
        assert run_jobs() == 2
        for result in results:
            result.refresh()
        assert "DataError" in results[0].errors[0].exception_class_path
        assert results[1].return_value == 3

    async def test_an_async_test_enqueues_and_runs(self) -> None:
        """`aenqueue` shares the transaction of the test."""
        results = [await tasks.add.aenqueue(1, 2), await tasks.add_async.aenqueue(3, 4)]
        assert await tasks.add.aget_result(results[0].id) == results[0]
        ids = await tasks.add.aenqueue_many([(5, 6)])
        assert await acancel(ids[0])
        assert await arun_jobs(limit=2, at_once=False) == 2
        for result in results:
            await result.arefresh()
        assert [result.return_value for result in results] == [3, 7]

    def test_an_attempt_is_a_handful_of_statements(self) -> None:
        """Seven per attempt here, nine per call."""
        tasks.echo.enqueue_many([()] * 10)
        logger = logging.getLogger(TASKS_PACKAGE)
        with (
            mock.patch.object(logger, "propagate", False),
            CaptureQueriesContext(connection) as seen,
        ):
            signals._answers.clear()
            run_jobs()
        signals._answers.clear()
        assert len(seen) <= 10 * 7 + 9

    def test_an_atomic_task_rolls_back_its_own_work_only(self) -> None:
        Effect.objects.create(key="of the test")
        result = tasks.record_and_fail.enqueue("of the job")
        good = tasks.record_atomic.enqueue("good")
        assert run_jobs() == 3
        keys = sorted(Effect.objects.values_list("key", flat=True))
        assert keys == ["good", "of the test"]
        result.refresh()
        good.refresh()
        assert result.status == TaskResultStatus.FAILED
        assert good.status == TaskResultStatus.SUCCESSFUL


class TestOutsideATransaction(TransactionTestCase):
    """Where commits are real."""

    def test_jobs_run_all_the_same(self) -> None:
        atomic = tasks.record_atomic.enqueue("a")
        failing = break_a_constraint.enqueue()
        assert run_jobs() == 3
        for result in (atomic, failing):
            result.refresh()
        assert atomic.is_finished and failing.is_finished
        assert not connection.in_atomic_block
        assert Effect.objects.filter(key="before the mistake").count() == 2

    def test_jobs_with_keys_run_one_after_the_other(self) -> None:
        """Whoever claims them holds a row, until the transaction of the claim ends."""
        tasks.add.using(concurrency_key="shop:1").enqueue_many([(1, 2), (3, 4)])
        tasks.add.using(concurrency_key="shop:2", priority=5).enqueue(5, 6)
        assert run_jobs() == 3
        assert count_jobs(status="successful") == 3
        assert not connection.in_atomic_block

    def test_jobs_with_rate_limits_run(self) -> None:
        RateLimit.objects.create(name="api", count=1, period=3600)
        tasks.add.using(rate_limit="api").enqueue_many([(1, 2), (3, 4)])
        assert run_jobs() == 2

    def test_rate_limits_hold_where_the_test_is_about_time(self) -> None:
        RateLimit.objects.create(name="api", count=1, period=3600)
        tasks.add.using(rate_limit="api").enqueue_many([(1, 2), (3, 4)])
        assert [run_jobs(at_once=False), run_jobs(at_once=False)] == [1, 0]

    def test_jobs_of_limited_queues_run(self) -> None:
        QueueSettings.objects.create(queue_name="default", max_running=1, boost=3)
        tasks.add.enqueue_many([(1, 2), (3, 4)])
        assert run_jobs() == 2

    async def test_an_async_test_runs_jobs_with_keys(self) -> None:
        await tasks.add_async.using(concurrency_key="shop:1").aenqueue(1, 2)
        await tasks.add.using(concurrency_key="shop:1").aenqueue(3, 4)
        assert await arun_jobs() == 2


def test_rate_limits_hold_in_a_transaction_too() -> None:
    RateLimit.objects.create(name="api", count=1, period=3600)
    tasks.add.using(rate_limit="api").enqueue_many([(1, 2), (3, 4)])
    assert [run_jobs(at_once=False), run_jobs(at_once=False)] == [1, 0]


def test_run_jobs_in_an_async_test_says_what_to_write() -> None:
    async def call() -> None:
        run_jobs()

    with pytest.raises(SynchronousOnlyOperation, match=r"Write `await arun_jobs\(\)`"):
        asyncio.run(call())


def test_without_jobs_nothing_runs() -> None:
    assert run_jobs() == 0


def test_jobs_of_jobs_run_too() -> None:
    enqueue_more.enqueue(3)
    assert run_jobs() == 4
    assert count_jobs(status="successful") == 4


def test_jobs_run_by_priority_and_then_in_order(tmp_path: Any) -> None:
    path = str(tmp_path / "lines")
    for priority, text in ((0, "b"), (5, "a"), (0, "c"), (-5, "d")):
        tasks.touch.using(priority=priority).enqueue(path, text)
    assert run_jobs() == 4
    assert (tmp_path / "lines").read_text().split() == ["a", "b", "c", "d"]


def test_all_queues_and_aliases_are_run() -> None:
    backend = {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}
    with override_settings(TASKS={"default": backend, "other": backend}):
        tasks.add.using(backend="other", queue_name="x").enqueue(1, 2)
        tasks.add.using(queue_name="y").enqueue(1, 2)
        assert run_jobs() == 2


def test_async_tasks_and_tasks_with_a_context_run() -> None:
    results = [tasks.add_async.enqueue(1, 2), tasks.describe_context.enqueue("v")]
    assert run_jobs() == 2
    for result in results:
        result.refresh()
    assert results[0].return_value == 3
    assert results[1].return_value == {"attempt": 1, "id": results[1].id, "value": "v"}


def test_the_current_job_can_be_asked() -> None:
    result = tasks.describe_job.using(max_attempts=4).enqueue()
    run_jobs()
    result.refresh()
    assert result.return_value == {
        "id": result.id,
        "attempt": 1,
        "max_attempts": 4,
        "is_cancelled": False,
    }
    with pytest.raises(LookupError, match="outside a running job"):
        current_job()


def test_retries_and_later_jobs_do_not_wait() -> None:
    """S4.14: in a test the backoff is immediate."""
    failing = break_a_constraint.enqueue()
    later = tasks.add.using(run_after=timedelta(days=365)).enqueue(1, 2)
    assert run_jobs() == 3
    assert get_job(failing.id).status == "failed"
    assert get_job(later.id).status == "successful"


def test_jobs_with_keys_run_though_the_tables_were_emptied() -> None:
    """As a TransactionTestCase leaves them: the row that claims lock is made again, too."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_keyed_claim")
    RateLimit.objects.create(name="emptied", count=5, period=1)
    job_id = make_job(concurrency_key="a", rate_limit_keys="emptied:a")
    assert run_jobs() == 1
    assert get_job(job_id).status == "successful"


@pytest.mark.parametrize("before", ["on", "off"])
def test_the_claim_is_not_compiled(before: str) -> None:
    """It has cost up to a second per job where the server's tables had no statistics."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL jit = {before}")
        result = ask_for_jit.enqueue()
        run_jobs()
        result.refresh()
        assert result.return_value == "off"
        cursor.execute("SHOW jit")
        assert cursor.fetchone() == (before,)


def test_they_wait_where_the_test_is_about_time() -> None:
    failing = break_a_constraint.enqueue()
    later = tasks.add.using(run_after=timedelta(days=365)).enqueue(1, 2)
    assert run_jobs(at_once=False) == 1
    assert (get_job(failing.id).status, get_job(failing.id).attempts) == ("ready", 1)
    assert get_job(failing.id).due_at > get_job(failing.id).last_attempted_at
    assert get_job(later.id).attempts == 0
    assert run_jobs(at_once=False) == 0


@pytest.mark.parametrize(
    ("how", "ran", "result"),
    [("retry", 2, "attempt 2"), ("snooze", 2, "attempt 1"), ("discard", 1, None)],
)
def test_steering_exceptions_steer(how: str, ran: int, result: str | None) -> None:
    job_id = steer.enqueue(how).id
    assert run_jobs() == ran
    assert Job.objects.get(pk=job_id).result == result


@pytest.mark.parametrize("name", ["exit", "interrupt"])
def test_a_task_that_wants_to_end_the_process_fails(name: str) -> None:
    job_id = leave_by.using(max_attempts=1).enqueue(name).id
    assert run_jobs() == 1
    assert get_job(job_id).status == "failed"


def test_a_job_of_an_unknown_task_fails_and_is_not_offered_for_ever() -> None:
    job_id = make_job("gone.tasks.f")
    run_jobs()
    job = get_job(job_id)
    assert job.status == "failed"
    assert "no task gone.tasks.f is declared here" in job.errors[0]["message"]


def test_jobs_that_enqueue_each_other_for_ever_end_in_an_error() -> None:
    enqueue_for_ever.enqueue()
    with pytest.raises(RuntimeError) as caught:
        run_jobs(limit=20)
    assert str(caught.value).startswith(
        "run_jobs() expected at most 20 attempts, got more. "
        f"Most are of {enqueue_for_ever.module_path}: 20. "
    )
    assert count_jobs(status="successful") == 20
    assert count_jobs(status="running") == 0
    assert not Worker.objects.filter(ended_at=None).exists()


def test_exactly_the_limit_is_no_error() -> None:
    tasks.echo.enqueue_many([()] * 3)
    assert run_jobs(limit=3) == 3


def test_no_worker_stays_registered() -> None:
    tasks.add.enqueue(1, 2)
    run_jobs()
    assert not Worker.objects.filter(ended_at=None).exists()


def test_signals_are_sent_as_a_worker_sends_them() -> None:
    seen: list[tuple[str, Any, int]] = []

    def receive(name: str) -> Callable[..., None]:
        def note(sender: Any, task_result: Any, **kwargs: Any) -> None:
            seen.append((name, task_result.status, task_result.attempts))

        return note

    receivers = [(task_started, receive("started")), (task_finished, receive("finished"))]
    for signal, receiver in receivers:
        signal.connect(receiver, weak=False)
    try:
        tasks.add.enqueue(1, 2)
        tasks.fail_once.enqueue()
        run_jobs()
    finally:
        for signal, receiver in receivers:
            signal.disconnect(receiver)
    assert seen == [
        ("started", TaskResultStatus.RUNNING, 1),
        ("finished", TaskResultStatus.SUCCESSFUL, 1),
        ("started", TaskResultStatus.RUNNING, 1),
        ("finished", TaskResultStatus.FAILED, 1),
    ]


def test_a_result_that_cannot_be_stored_fails_the_job() -> None:
    job_id = tasks.add.using(max_attempts=1).enqueue("a", "\u2400").id
    with override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": 5}):
        run_jobs()
    job = get_job(job_id)
    assert job.status == "failed"
    assert "expected the return value to take at most 5 bytes" in job.errors[0]["message"]
