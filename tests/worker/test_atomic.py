"""atomic=True: the task's own writes and the completion of its job commit together, or not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from unittest import mock

import psycopg
import pytest
from django.db import OperationalError, connection, transaction

from django_pgjobs import reschedule, workflow
from django_pgjobs.worker.running.outcome import Kind
from tests import tasks as plain_tasks
from tests.factories import get_job
from tests.helpers import connect, wait_until
from tests.models import Effect
from tests.worker import tasks
from tests.worker.support import Bench, Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


@pytest.fixture
def in_thread() -> Iterator[Callable[[Callable[[], object]], threading.Thread]]:
    """Run something in a thread that is joined at the end, its connection closed."""
    threads: list[threading.Thread] = []

    def start(function: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                function()
            finally:
                connection.close()

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(15)


def writers(job_id: int | str) -> set[str]:
    """Return the transactions that wrote the job's row and its effects."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT xmin::text FROM pgjobs_job WHERE id = %s"
            " UNION SELECT xmin::text FROM tests_effect WHERE job_id = %s",
            [job_id, job_id],
        )
        return {row[0] for row in cursor.fetchall()}


def test_effects_and_completion_are_one_transaction(bench: Bench) -> None:
    """S5.9, S5.11."""
    job = plain_tasks.record_atomic.enqueue("x")
    outcome = bench.run()
    assert outcome.stored
    assert get_job(job.id).status == "successful"
    assert len(writers(job.id)) == 1


def test_a_job_for_which_no_connection_can_be_opened_has_not_begun(bench: Bench) -> None:
    """It was no fault of the job's, and no attempt of it."""
    job = plain_tasks.record_atomic.using(max_attempts=1).enqueue("x")
    attempt = bench.claim()
    connection.close()
    refusal = OperationalError("sorry, too many\nclients already")
    with mock.patch.object(connection, "connect", side_effect=refusal):
        outcome = bench.run(attempt)
    assert (outcome.kind, outcome.delay) == (Kind.RELEASE, 10.0)
    row = get_job(job.id)
    assert (row.status, row.attempts, row.errors) == ("ready", 0, [])
    assert row.note.endswith("no connection for its transaction: sorry, too many clients already")
    reschedule(job.id, run_after=timedelta(0))
    assert bench.run().kind is Kind.DONE


def test_a_job_whose_session_is_read_only_has_not_begun(start_thread: Start) -> None:
    """Say behind the address of the server that failed there is a standby now."""
    job = plain_tasks.record_atomic.using(max_attempts=1).enqueue("x")
    name = connection.settings_dict["NAME"]
    with connect() as other:
        other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        try:
            start_thread(concurrency=1)
            wait_until(lambda: get_job(job.id).note)
        finally:
            other.execute("SET default_transaction_read_only = off")
            other.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    row = get_job(job.id)
    assert (row.status, row.attempts, row.errors) == ("ready", 0, [])
    assert row.note.endswith("no connection for its transaction: the session takes no writes")
    reschedule(job.id, run_after=timedelta(0))
    wait_until(lambda: get_job(job.id).status == "successful")


def test_a_session_that_a_task_leaves_read_only_keeps_one_job_from_beginning(
    start_thread: Start,
) -> None:
    start_thread(concurrency=1)
    tasks.leave_read_only.enqueue()
    job = plain_tasks.record_atomic.using(max_attempts=1).enqueue("x")
    wait_until(lambda: get_job(job.id).note)
    reschedule(job.id, run_after=timedelta(0))
    wait_until(lambda: get_job(job.id).status == "successful")


def test_a_task_that_makes_its_transaction_read_only_fails(bench: Bench) -> None:
    job = tasks.set_read_only.using(max_attempts=1).enqueue()
    assert bench.run().kind is Kind.FAIL
    assert "read-only transaction" in get_job(job.id).errors[0]["message"]


def test_a_hook_that_raises_after_the_commit_fails_no_job(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is done by then: nobody is told that it failed."""
    job = tasks.leave_broken_hook.enqueue("x")
    outcome = bench.run()
    assert (outcome.kind, outcome.stored) == (Kind.DONE, True)
    assert get_job(job.id).status == "successful"
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "the job is done; a hook of on_commit raised" in record.getMessage()
    assert record.exc_info and record.exc_info[0] is ZeroDivisionError


def test_without_atomic_they_are_two(bench: Bench) -> None:
    """What the test above would not notice otherwise."""
    job = plain_tasks.record.enqueue("x")
    assert not bench.run().stored
    assert len(writers(job.id)) == 2


@pytest.mark.slow
def test_an_interrupted_attempt_that_waits_for_a_lock_ends_without_its_process(
    start_thread: Start, in_thread: Callable[[Callable[[], object]], threading.Thread]
) -> None:
    """Its statement is cancelled on the server; the lock of somebody else costs no other job."""
    worker = start_thread(timeout_grace=2.0, concurrency=2)
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            Effect.objects.select_for_update().get(key="held")
            held.set()
            free.wait(30)

    Effect.objects.create(key="held", job_id=0)
    in_thread(hold)
    assert held.wait(10)
    job = tasks.take_effect_atomic.using(timeout=0.2, max_attempts=1).enqueue("held")
    wait_until(lambda: get_job(job.id).status == "failed")
    free.set()
    row = get_job(job.id)
    assert [entry["exception_class"] for entry in row.errors] == [
        "django_pgjobs.exceptions.JobTimeout"
    ]
    after = plain_tasks.record_atomic.enqueue("after")
    wait_until(lambda: get_job(after.id).status == "successful")
    assert worker.is_running


def test_nobody_sees_effects_or_completion_before_the_commit(
    start_thread: Start, gate: Gate
) -> None:
    """Exactly-once database effects."""
    start_thread()
    job = tasks.record_atomic_at_gate.enqueue("x")
    gate.wait_entered()
    assert not Effect.objects.exists()
    assert get_job(job.id).status == "running"
    gate.open()
    wait_until(lambda: get_job(job.id).status == "successful")
    assert Effect.objects.count() == 1


def test_a_stale_attempt_leaves_nothing(
    start_thread: Start, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """The job was rescued and runs elsewhere by the time the task returns."""
    worker = start_thread()
    job = tasks.record_atomic_at_gate.enqueue("x")
    gate.wait_entered()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET claim = claim + 2, worker_id = 1, attempts = 2 WHERE id = %s",
            [job.id],
        )
    before = vars(get_job(job.id))
    gate.open()
    wait_until(lambda: not worker.runner.state.held)
    assert not Effect.objects.exists()
    assert vars(get_job(job.id)) == before
    assert "belongs to another attempt by now" in caplog.text


def test_a_failed_attempt_leaves_nothing_but_its_error(bench: Bench) -> None:
    """S5.10."""
    job = plain_tasks.record_and_fail.enqueue("x")
    assert bench.run().kind is Kind.RETRY
    assert bench.run().kind is Kind.FAIL
    assert not Effect.objects.exists()
    row = get_job(job.id)
    assert (row.status, [entry["message"] for entry in row.errors]) == ("failed", ["x", "x"])


def test_a_result_that_cannot_be_stored_rolls_back_too(bench: Bench) -> None:
    job = tasks.record_atomic_and_return_nan.enqueue("x")
    assert bench.run().kind is Kind.FAIL
    assert not Effect.objects.exists()
    assert get_job(job.id).status == "failed"


def test_a_batch_that_cannot_be_counted_does_not_fail_its_job(bench: Bench) -> None:
    with workflow("odd") as flow:
        flow.add(plain_tasks.record_atomic.s("x"))
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION tests_refuse() RETURNS trigger LANGUAGE plpgsql"
            " AS 'BEGIN RAISE EXCEPTION $$odd$$; END'"
        )
        cursor.execute(
            "CREATE TRIGGER tests_refuse BEFORE UPDATE ON pgjobs_batch FOR EACH ROW"
            " WHEN (NEW.successful > 0) EXECUTE FUNCTION tests_refuse()"
        )
        try:
            assert bench.run().stored
        finally:
            cursor.execute("DROP FUNCTION tests_refuse CASCADE")
    assert Effect.objects.count() == 1
    # Noted, for whoever counts next.
    assert flow.counts().successful == 1
    flow.refresh_from_db()
    assert flow.successful == 0


def test_a_timeout_rolls_back(start_thread: Start) -> None:
    start_thread()
    job = plain_tasks.record_atomic.using(timeout=0.2, max_attempts=1).enqueue("x", 60.0)
    wait_until(lambda: get_job(job.id).status == "failed")
    assert not Effect.objects.exists()


def test_a_serialization_failure_is_tried_again(
    bench: Bench, open_connection: Callable[..., psycopg.Connection], gate: Gate, in_thread
) -> None:
    """By the backoff of the task, as any other failure."""
    effect = Effect.objects.create(key="contended")
    job = tasks.update_in_snapshot.enqueue(effect.pk)
    found: list[Kind] = []
    attempt = bench.claim()
    thread = in_thread(lambda: found.append(bench.run(attempt).kind))
    gate.wait_entered()
    open_connection().execute("UPDATE tests_effect SET attempt = 99 WHERE id = %s", [effect.pk])
    gate.open()
    thread.join(15)
    assert found == [Kind.RETRY]
    assert "SerializationFailure" in get_job(job.id).errors[0]["traceback"]
    assert bench.run().kind is Kind.DONE
    effect.refresh_from_db()
    assert effect.attempt == 100


def test_an_enqueue_of_an_atomic_task_commits_with_it(bench: Bench) -> None:
    """Transactional enqueue."""
    tasks.enqueue_atomic_and_fail.enqueue()
    bench.run()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgjobs_job WHERE task_path = 'tests.tasks.add'")
        assert cursor.fetchone() == (0,)


@pytest.mark.parametrize(
    ("name", "kind", "status"), [("Snooze", Kind.SNOOZE, "ready"), ("Discard", Kind.FAIL, "failed")]
)
def test_steering_exceptions_roll_back(bench: Bench, name: str, kind: Kind, status: str) -> None:
    job = tasks.steer_atomic.enqueue(name)
    assert bench.run().kind is kind
    assert not Effect.objects.exists()
    assert get_job(job.id).status == status


def test_a_worker_ends_with_its_last_job_though_that_wrote_its_own_end(start_thread: Start) -> None:
    """What is stored already needs no turn of the pump."""
    Effect.objects.create(key="x")
    jobs = [tasks.take_effect_atomic.enqueue("x") for _ in range(2)]
    worker = start_thread(max_jobs=1, concurrency=1, poll_interval=3600.0)
    assert worker.join() == 0
    assert sorted(get_job(job.id).status for job in jobs) == ["ready", "successful"]
