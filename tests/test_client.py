"""What a program may do to a job afterwards: cancel, requeue, reschedule."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.test import override_settings
from psycopg import sql

import django_pgjobs
from django_pgjobs import acancel, arequeue, areschedule, cancel, requeue, reschedule
from django_pgjobs.control import lifecycle
from django_pgjobs.exceptions import JobError
from django_pgjobs.models import Job
from tests import tasks
from tests.factories import count_jobs, get_job, make_job, make_running_job
from tests.helpers import wait_until

pytestmark = pytest.mark.django_db

WHEN = datetime(2031, 5, 6, 7, 8, 9, 1, tzinfo=UTC)
ERRORS = [{"exception_class": "builtins.KeyError", "message": "m", "traceback": "t"}]


def reschedule_now(job: Any) -> bool:
    """Bring the signature of reschedule() to that of the others."""
    return reschedule(job, None)


VERBS = [cancel, requeue, reschedule_now]


def make_finished_job(status: str = "failed", **columns: Any) -> int:
    """Insert a job with a past."""
    now = sql.SQL("now()")
    past: dict[str, Any] = {
        "status": status,
        "claim": 3,
        "attempts": 2,
        "lost_count": 1,
        "worker_id": 7,
        "worker_ids": ["a", "b"],
        "started_at": now,
        "last_attempted_at": now,
        "finished_at": now,
        "cancel_requested_at": now,
        "result": {"r": 1},
        "progress": {"done": 1},
        "note": "n",
        "errors": ERRORS,
    }
    return make_job(**(past | columns))


def test_a_waiting_job_is_cancelled_at_once() -> None:
    job_id = make_job(claim=4)
    assert cancel(job_id) is True
    job = get_job(job_id)
    assert (job.status, job.claim) == ("cancelled", 5)
    assert job.finished_at == job.cancel_requested_at is not None


@pytest.mark.parametrize(
    "note",
    ["passed over: no room", "retry after Mishap", "snoozed: no disk", "released at shutdown"],
)
def test_what_a_job_waited_for_is_not_noted_of_a_cancelled_one(note: str) -> None:
    job_id = make_job(note=note)
    assert cancel(job_id) is True
    assert get_job(job_id).note == ""


def test_a_refusal_of_before_is_forgotten_when_the_job_is_put_off() -> None:
    """Of one that is to run now it is still what keeps it."""
    now, later = (make_job(note="passed over: no room") for _ in range(2))
    assert reschedule(now, None)
    assert reschedule(later, WHEN)
    assert [get_job(now).note, get_job(later).note] == ["passed over: no room", ""]


def test_a_job_of_the_future_is_cancelled_at_once() -> None:
    job_id = make_job(run_after=WHEN)
    assert cancel(job_id) is True
    assert get_job(job_id).status == "cancelled"


def test_a_running_job_is_asked_to_end() -> None:
    job = make_running_job(claim=4)
    assert cancel(job.id) is True
    asked = get_job(job.id)
    assert (asked.status, asked.claim, asked.finished_at) == ("running", 4, None)
    assert asked.cancel_requested_at is not None
    assert cancel(job.id) is True
    assert get_job(job.id).cancel_requested_at == asked.cancel_requested_at


@pytest.mark.parametrize("status", ["successful", "failed", "cancelled"])
def test_a_finished_job_is_not_cancelled(status: str) -> None:
    job_id = make_finished_job(status)
    before = get_job(job_id)
    assert cancel(job_id) is False
    assert get_job(job_id) == before


@pytest.mark.parametrize("status", ["successful", "failed", "cancelled"])
def test_a_finished_job_gets_new_attempts(status: str) -> None:
    """S1.3: a failed task can be restarted; its errors stay as history."""
    job_id = make_finished_job(status)
    assert requeue(job_id) is True
    job = get_job(job_id)
    assert (job.status, job.claim, job.attempts, job.lost_count) == ("ready", 4, 0, 0)
    assert (job.worker_id, job.worker_ids, job.result, job.progress) == (None, [], None, None)
    assert (job.started_at, job.last_attempted_at, job.finished_at) == (None, None, None)
    assert (job.cancel_requested_at, job.run_after, job.due_at) == (None, None, None)
    assert (job.errors, job.note, job.args) == (ERRORS, "requeued", [1, 2])


def test_a_job_may_be_requeued_for_later() -> None:
    job_id = make_finished_job()
    assert requeue(job_id, run_after=WHEN) is True
    assert (get_job(job_id).run_after, get_job(job_id).due_at) == (WHEN, WHEN)


@pytest.mark.parametrize("status", ["ready", "running"])
def test_an_unfinished_job_is_not_requeued(status: str) -> None:
    job_id = make_job(status=status)
    assert requeue(job_id) is False
    assert get_job(job_id).status == status


def test_a_waiting_job_moves_to_another_time_and_back() -> None:
    job_id = make_job(claim=2)
    assert reschedule(job_id, WHEN) is True
    job = get_job(job_id)
    assert (job.status, job.claim, job.run_after, job.due_at) == ("ready", 2, WHEN, WHEN)
    assert reschedule(job_id, None) is True
    assert (get_job(job_id).run_after, get_job(job_id).due_at) == (None, None)


def test_a_timedelta_counts_from_the_clock_of_the_database() -> None:
    job_id = make_job()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        before = cursor.fetchone()[0]
        reschedule(job_id, timedelta(hours=1))
        cursor.execute("SELECT clock_timestamp()")
        after = cursor.fetchone()[0]
    hour = timedelta(hours=1)
    assert before + hour <= get_job(job_id).due_at <= after + hour


@pytest.mark.parametrize("run_after", [timedelta(0), datetime(1999, 1, 1, tzinfo=UTC)])
def test_a_time_that_has_come_makes_the_job_due(run_after: Any) -> None:
    job_id = make_job(run_after=WHEN)
    assert reschedule(job_id, run_after) is True
    assert get_job(job_id).due_at is None


@pytest.mark.parametrize("status", ["running", "successful", "failed", "cancelled"])
def test_a_job_that_does_not_wait_is_not_rescheduled(status: str) -> None:
    job_id = make_job(status=status)
    assert reschedule(job_id, WHEN) is False
    assert get_job(job_id).run_after is None


@pytest.mark.parametrize("verb", VERBS)
def test_a_job_that_does_not_exist_is_no_error(verb: Callable[[Any], bool]) -> None:
    for job_id in (2**62, 2**63 - 1, "12345678901"):
        assert verb(job_id) is False


@pytest.mark.parametrize(
    "job",
    ["", "x", "01", "-1", "9" * 30, None, 0, -1, 2**63, 10**30, 1.5, object(), Job()],
)
@pytest.mark.parametrize("verb", VERBS)
def test_what_is_no_job_is_refused_without_a_statement(
    verb: Callable[[Any], bool], job: Any, django_assert_num_queries: Any
) -> None:
    with django_assert_num_queries(0):
        with pytest.raises(ValueError, match="expected a job, its id or its TaskResult, got "):
            verb(job)


def test_a_job_may_be_given_as_id_text_model_or_result() -> None:
    result = tasks.add.enqueue(1, 2)
    job = Job.objects.get()
    for form in (result, job, job.pk, result.id):
        assert cancel(form) is True
        assert requeue(form) is True
        assert reschedule(form, WHEN) is True


@pytest.mark.parametrize(
    ("run_after", "said"),
    [
        (datetime(2031, 1, 1), "expected run_after with a time zone, got "),  # noqa: DTZ001
        (timedelta(seconds=-1), "expected run_after to be 0 seconds or more, and finite, got -1."),
        (timedelta.max, "expected run_after within 1000 years"),
        (datetime.max.replace(tzinfo=UTC), "expected run_after from 0001-01-02 "),
        ("tomorrow", "expected run_after to be a datetime or a timedelta, got 'tomorrow'"),
        (5, "expected run_after to be a datetime or a timedelta, got 5"),
    ],
)
def test_a_time_that_cannot_be_is_refused_and_the_transaction_goes_on(
    run_after: Any, said: str
) -> None:
    waiting, finished = make_job(), make_finished_job()
    with transaction.atomic():
        for call in (
            lambda: reschedule(waiting, run_after),
            lambda: requeue(finished, run_after=run_after),
        ):
            with pytest.raises((ValueError, TypeError), match=said):
                call()
        assert cancel(waiting) is True


@pytest.mark.django_db(transaction=True)
def test_all_of_them_take_part_in_the_transaction_of_the_caller() -> None:
    waiting, finished = make_job(), make_finished_job()
    other = make_job()
    with transaction.atomic():
        assert cancel(waiting)
        assert requeue(finished)
        assert reschedule(other, WHEN)
        transaction.set_rollback(True)
    assert get_job(waiting).status == "ready"
    assert get_job(finished).status == "failed"
    assert get_job(other).run_after is None


def test_a_job_can_be_changed_again_in_the_same_transaction() -> None:
    with transaction.atomic():
        result = tasks.add.enqueue(1, 2)
        steps = [cancel(result), requeue(result), reschedule(result, WHEN), cancel(result)]
    assert steps == [True] * 4
    assert get_job(result.id).status == "cancelled"


def test_the_async_twins_do_the_same() -> None:
    job_id = make_job()
    assert async_to_sync(acancel)(job_id) is True
    assert get_job(job_id).status == "cancelled"
    assert async_to_sync(arequeue)(job_id, run_after=timedelta(0)) is True
    assert async_to_sync(areschedule)(job_id, WHEN) is True
    assert get_job(job_id).due_at == WHEN
    for twin in ("acancel", "arequeue", "areschedule"):
        assert twin in django_pgjobs.__all__


def notified(listener: psycopg.Connection, change: Callable[[], object]) -> list[tuple[str, str]]:
    """Return (channel, payload) of what *change* notifies of."""
    listener.execute("LISTEN pgjobs")
    listener.execute("LISTEN pgjobs_cancel")
    change()
    with connection.cursor() as cursor:
        cursor.execute("NOTIFY pgjobs, 'the end'")
    seen: list[tuple[str, str]] = []
    for notification in listener.notifies(timeout=10):
        if notification.payload == "the end":
            break
        seen.append((notification.channel, notification.payload))
    return seen


@pytest.mark.django_db(transaction=True)
def test_workers_hear_of_what_concerns_them(
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    running, waiting = make_running_job().id, make_job(queue_name="a")
    finished = make_finished_job(queue_name="b")
    assert notified(open_connection(), lambda: cancel(running)) == [("pgjobs_cancel", "")]
    assert notified(open_connection(), lambda: reschedule(waiting, WHEN)) == [("pgjobs", "a")]
    assert notified(open_connection(), lambda: cancel(waiting)) == []
    assert notified(open_connection(), lambda: requeue(finished)) == [("pgjobs", "b")]
    assert notified(open_connection(), lambda: requeue(finished)) == []


LOCK = "SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE"


@pytest.mark.race
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", VERBS)
def test_a_job_that_is_locked_for_a_moment_is_waited_for(
    verb: Callable[[Any], bool], open_connection: Callable[..., psycopg.Connection]
) -> None:
    job_id = make_finished_job() if verb is requeue else make_job()
    holder = open_connection(autocommit=False)
    holder.execute(LOCK, [job_id])

    def change() -> bool:
        try:
            return verb(job_id)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(change)
        seen = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT job.status%%'"
        with open_connection() as observer:
            wait_until(lambda: observer.execute(seen).fetchone() != (0,))
        assert not future.done()
        holder.commit()
        assert future.result(10) is True


@pytest.mark.race
@pytest.mark.django_db(transaction=True)
def test_a_job_that_finishes_meanwhile_is_not_cancelled(
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    job_id = make_running_job().id
    worker = open_connection(autocommit=False)
    worker.execute("UPDATE pgjobs_job SET status = 'successful' WHERE id = %s", [job_id])

    def change() -> bool:
        try:
            return cancel(job_id)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(change)
        worker.commit()
        assert future.result(10) is False
    assert get_job(job_id).status == "successful"


@pytest.mark.race
@pytest.mark.django_db(transaction=True)
def test_a_lock_that_stays_is_an_error_and_the_transaction_goes_on(
    open_connection: Callable[..., psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "LOCKED_SECONDS", 0.05)
    job_id = make_job()
    holder = open_connection(autocommit=False)
    holder.execute(LOCK, [job_id])
    with transaction.atomic():
        with pytest.raises(JobError, match=rf"job {job_id} is locked by another transaction"):
            cancel(job_id)
        kept = tasks.add.enqueue(1, 2)
    assert get_job(kept.id).status == "ready"


def test_without_time_zones_a_naive_time_is_local() -> None:
    job_id = make_job()
    with override_settings(USE_TZ=False):
        assert reschedule(job_id, datetime(2031, 5, 6, 7)) is True  # noqa: DTZ001
    assert get_job(job_id).run_after == datetime(2031, 5, 6, 1, 15, tzinfo=UTC)
    assert count_jobs() == 1
