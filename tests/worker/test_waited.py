"""How long a job waits: since it could run last, not since somebody enqueued it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs import cancel, current_job, requeue, reschedule, task
from django_pgjobs.models import Job
from django_pgjobs.queries import jobs as queries
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.running.outcome import Kind
from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.worker.support import Bench, claim

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = sql.SQL("now() - interval '1 hour'")
MINUTE = sql.SQL("now() - interval '1 minute'")


def let_minutes_pass(minutes: int) -> None:
    """Move all that is known of jobs into the past."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET enqueued_at = enqueued_at - passed,"
            " run_after = run_after - passed, due_at = due_at - passed,"
            " ready_at = ready_at - passed, started_at = started_at - passed,"
            " last_attempted_at = last_attempted_at - passed"
            " FROM (SELECT make_interval(mins => %s) AS passed) AS clock",
            [minutes],
        )


def promote(own: OwnConnection) -> None:
    """Let jobs whose time has come be claimed."""
    own.round_trip([lambda cursor: queries.send_promotion(cursor, max_jobs=9)])


def waited(own: OwnConnection) -> float:
    """Claim the one job that can be and return how long it waited, in minutes."""
    promote(own)
    [row] = claim(own, make_worker())
    return row.waited / 60


@task(max_attempts=3, backoff=[600])
def fail() -> None:
    """Fail."""
    raise RuntimeError("boom")


@task
def tell() -> float:
    """Return how long the job waited."""
    return current_job().waited


def test_a_retry_waits_since_it_was_due(bench: Bench) -> None:
    """Not since it was enqueued: the backoff is no wait for a worker."""
    job = fail.enqueue()
    assert bench.run().kind is Kind.RETRY
    let_minutes_pass(13)
    assert waited(bench.connection) == pytest.approx(3, abs=1)
    assert get_job(job.id).due_at is None


def test_a_requeued_job_waits_since_it_was_requeued(own: OwnConnection) -> None:
    job_id = make_job(enqueued_at=HOUR)
    cancel(job_id)
    requeue(job_id)
    assert waited(own) == pytest.approx(0, abs=1)


def test_a_rescued_job_waits_since_its_rescue(own: OwnConnection) -> None:
    lost = make_worker(lease_seconds=-1)
    make_running_job(lost, enqueued_at=HOUR)
    with own.cursor() as cursor:
        queries.rescue_jobs(cursor, max_jobs=9, default_max_losses=3)
    assert waited(own) == pytest.approx(0, abs=1)


def test_a_job_that_was_claimed_and_not_begun_waits_on(own: OwnConnection) -> None:
    """A full worker that hands jobs back does not hide how long they wait."""
    job = make_running_job(enqueued_at=HOUR)
    given_back = queries.Return(
        id=job.id, claim=job.claim, delay=None, counted=False, error="", note="released",
        age=0.0, duration=0.0,
    )  # fmt: skip
    own.round_trip([lambda cursor: queries.send_returns(cursor, [given_back])])
    assert waited(own) == pytest.approx(60, abs=1)


def test_a_job_of_an_unknown_task_waits_on(bench: Bench) -> None:
    """The longer it waits, the rarer it is offered."""
    make_job("no.task", enqueued_at=HOUR)
    assert bench.run().delay == 300
    let_minutes_pass(6)
    assert waited(bench.connection) == pytest.approx(66, abs=1)


def test_a_requeued_job_of_an_unknown_task_is_offered_again_soon(bench: Bench) -> None:
    job_id = make_job("no.task", enqueued_at=HOUR)
    cancel(job_id)
    requeue(job_id)
    assert bench.run().delay == 5


def test_a_job_that_is_moved_waits_since_the_new_time(own: OwnConnection) -> None:
    job_id = make_job(enqueued_at=HOUR, run_after=sql.SQL("now() + interval '1 hour'"))
    reschedule(job_id, None)
    assert waited(own) == pytest.approx(0, abs=1)


def test_a_job_that_may_run_and_is_told_to_run_now_waits_on(own: OwnConnection) -> None:
    job_id = make_job(enqueued_at=HOUR, run_after=MINUTE)
    reschedule(job_id, None)
    assert waited(own) == pytest.approx(1, abs=0.5)


def test_a_dependant_waits_since_it_was_let_go(own: OwnConnection) -> None:
    first = tell.enqueue()
    second = tell.using(after=[first], after_failure="hold").enqueue()
    let_minutes_pass(60)
    cancel(first.id)
    assert get_job(second.id).hold == "predecessor failed"
    reschedule(second.id, None)
    [row] = [row for row in claim(own, make_worker()) if str(row.id) == second.id]
    assert row.waited < 60


def test_a_dependant_of_a_success_waits_since_that(bench: Bench) -> None:
    first = tell.enqueue()
    tell.using(after=[first]).enqueue()
    let_minutes_pass(60)
    assert bench.run().kind is Kind.DONE
    assert waited(bench.connection) == pytest.approx(0, abs=1)


def test_a_job_that_is_merged_into_waits_since_the_time_it_is_moved_to(own: OwnConnection) -> None:
    debounced = tell.using(unique_key="one", on_conflict="merge")
    debounced.using(run_after=timedelta(hours=1)).enqueue()
    let_minutes_pass(30)
    debounced.enqueue()
    assert waited(own) == pytest.approx(0, abs=1)


def test_the_running_job_knows_how_long_it_waited(bench: Bench) -> None:
    job = tell.enqueue()
    let_minutes_pass(2)
    assert bench.run().kind is Kind.DONE
    assert get_job(job.id).result == pytest.approx(120, abs=60)


def test_a_job_that_is_claimed_before_its_time_has_not_waited(own: OwnConnection) -> None:
    """`run_jobs()` does that."""
    make_job(run_after=sql.SQL("now() + interval '1 hour'"))
    Job.objects.update(due_at=None)
    [row] = claim(own, make_worker())
    assert row.waited == 0


def test_a_row_says_since_when_it_can_run(bench: Bench) -> None:
    job = fail.enqueue()
    row = Job.objects.get(pk=job.id)
    assert row.waiting_since == row.enqueued_at
    bench.run()
    row = Job.objects.get(pk=job.id)
    assert row.waiting_since == row.ready_at == row.due_at
