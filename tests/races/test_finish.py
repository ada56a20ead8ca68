"""Finishing, while somebody rescues the same job; and requeueing, while somebody prunes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import transaction
from psycopg import sql

from django_pgjobs import requeue, reschedule
from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from tests import tasks as plain_tasks
from tests.factories import count_jobs, get_job, get_worker, make_job, make_running_job, make_worker
from tests.helpers import wait_until, wait_until_blocked
from tests.models import Effect
from tests.races.support import DjangoThread, open_transaction, wait_until_role_is_blocked
from tests.races.test_cancel import LOOKED, finish
from tests.worker import tasks
from tests.worker.support import Bench, Gate, ThreadedWorker, claim, ids

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race, pytest.mark.slow]

InThread = Callable[..., DjangoThread]
OpenOwn = Callable[[], OwnConnection]
OLD = sql.SQL("now() - interval '1 year'")


def rescue(own: OwnConnection) -> list[int]:
    """Rescue, and return the ids of the jobs."""
    with own.cursor() as cursor:
        rescued = jobs.rescue_jobs(cursor, max_jobs=100, default_max_losses=3)
    return sorted(job.id for job in rescued)


def prune(own: OwnConnection, status: str = "failed", max_jobs: int = 100) -> int:
    """Prune, and return how many jobs went."""
    with own.cursor() as cursor:
        return jobs.prune_jobs(cursor, jobs.OldJobs(status, 60), max_jobs=max_jobs)


def lost_job(**columns: Any) -> Any:
    """Insert a running job whose worker's lease is over."""
    return make_running_job(make_worker(lease_seconds=-1), **columns)


def test_a_finish_that_meets_a_rescue_misses(open_own: OpenOwn, in_thread: InThread) -> None:
    """The claim has risen when the finish gets the row."""
    job = lost_job()
    rescuer, late = open_own(), open_own()
    late.open()
    with open_transaction(rescuer) as end:
        assert rescue(rescuer) == [job.id]
        finisher = in_thread(lambda: finish(late, job))
        wait_until_blocked(late.open())
        end("COMMIT")
    assert finisher.result() == []
    assert (get_job(job.id).status, get_job(job.id).result) == ("ready", None)


def test_a_finish_that_meets_a_rescue_which_is_rolled_back_is_written(
    open_own: OpenOwn, in_thread: InThread
) -> None:
    job = lost_job()
    rescuer, late = open_own(), open_own()
    late.open()
    with open_transaction(rescuer) as end:
        rescue(rescuer)
        finisher = in_thread(lambda: finish(late, job))
        wait_until_blocked(late.open())
        end("ROLLBACK")
    assert finisher.result() == [job.id]
    assert get_job(job.id).status == "successful"


def test_a_finish_that_meets_the_final_rescue_is_told_to_try_again_and_misses(
    open_own: OpenOwn, in_thread: InThread
) -> None:
    """The row is moved under it, SQLSTATE 40001; sent again, it finds nothing."""
    job = lost_job(max_losses=1)
    rescuer, late = open_own(), open_own()
    late.open()
    with open_transaction(rescuer) as end:
        rescue(rescuer)
        finisher = in_thread(lambda: finish(late, job))
        wait_until_blocked(late.open())
        end("COMMIT")
    with pytest.raises(psycopg.errors.SerializationFailure):
        finisher.result()
    assert finish(late, job) == []
    assert get_job(job.id).status == "failed"


def test_a_rescue_passes_over_a_job_that_is_being_finished(open_own: OpenOwn) -> None:
    """A rescue waits for nobody."""
    job, other = lost_job(), lost_job()
    finisher, rescuer = open_own(), open_own()
    with open_transaction(finisher) as end:
        assert finish(finisher, job) == [job.id]
        assert rescue(rescuer) == [other.id]
        end("COMMIT")
    assert rescue(rescuer) == []
    assert get_job(job.id).status == "successful"


def rescue_from_live_worker(own: OwnConnection, worker_id: int, job_id: int | str) -> None:
    """Rescue a job as if its worker's lease were over, without the worker noticing."""
    expires = get_worker(worker_id).lease_expires_at
    execute = own.open().execute
    move = "UPDATE public.pgjobs_worker SET lease_expires_at = %s WHERE id = %s"
    execute(move, [expires.replace(year=2000), worker_id])
    assert rescue(own) == [int(job_id)]
    execute(move, [expires, worker_id])


def test_a_worker_outlives_a_finish_that_meets_the_final_rescue(
    own: OwnConnection,
    start_thread: Callable[..., ThreadedWorker],
    gate: Gate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The outcome is sent again, missed, and logged as lost."""
    worker = start_thread()
    job = tasks.wait_at_gate.using(max_losses=1).enqueue([1])
    gate.wait_entered()
    with open_transaction(own) as end:
        rescue_from_live_worker(own, worker.id, job.id)
        gate.open()
        wait_until_role_is_blocked("pump")
        end("COMMIT")
    wait_until(lambda: not worker.runner.state.held)
    row = get_job(job.id)
    assert (row.status, row.result) == ("failed", None)
    assert row.errors[-1]["exception_class"].endswith(".WorkerLost")
    assert f"job={job.id} outcome=done" in caplog.text
    after = plain_tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(after.id).status == "successful")


@pytest.mark.parametrize(("max_losses", "status"), [(1, "failed"), (5, "ready")])
def test_an_atomic_task_whose_job_is_rescued_as_it_commits_leaves_nothing(
    open_own: OpenOwn, in_thread: InThread, gate: Gate, max_losses: int, status: str
) -> None:
    """Exactly-once database effects."""
    runner, rescuer = open_own(), open_own()
    bench = Bench(runner)
    job = tasks.record_atomic_at_gate.using(max_losses=max_losses).enqueue("x")
    attempt = bench.claim()
    running = in_thread(lambda: bench.run(attempt))
    gate.wait_entered()
    with open_transaction(rescuer) as end:
        rescue_from_live_worker(rescuer, bench.worker_id, job.id)
        gate.open()
        running.wait_until_executed("UPDATE pgjobs_job AS job")
        end("COMMIT")
    assert not running.result().stored
    assert not Effect.objects.exists()
    row = get_job(job.id)
    assert (row.status, row.lost_count, len(row.errors)) == (status, 1, 1)


def test_a_claim_whose_lease_ends_before_its_commit_is_rescued_by_the_next_look(
    open_own: OpenOwn,
) -> None:
    """Nobody could see the running row at the first look."""
    job_id, worker = make_job(), make_worker(lease_seconds=60)
    claimer, rescuer = open_own(), open_own()
    with open_transaction(claimer) as end:
        assert ids(claim(claimer, worker)) == [job_id]
        rescuer.open().execute(
            "UPDATE public.pgjobs_worker SET lease_expires_at = now() - interval '1 s'"
        )
        assert rescue(rescuer) == []
        end("COMMIT")
    assert rescue(rescuer) == [job_id]


@pytest.mark.parametrize(("how", "requeued"), [("COMMIT", False), ("ROLLBACK", True)])
def test_a_requeue_that_meets_a_prune_does_what_is_left_to_do(
    own: OwnConnection, in_thread: InThread, how: str, requeued: bool
) -> None:
    job_id = make_job(status="failed", finished_at=OLD)

    def requeue_in_transaction() -> bool:
        with transaction.atomic():
            done = requeue(job_id)
            Effect.objects.create(key="after")
        return done

    with open_transaction(own) as end:
        assert prune(own) == 1
        requeuer = in_thread(requeue_in_transaction)
        requeuer.wait_until_executed(LOOKED)
        end(how)
    assert requeuer.result() is requeued
    assert Effect.objects.count() == 1
    assert count_jobs(status="ready") == int(requeued)


@pytest.mark.parametrize("rolls_back", [False, True])
def test_a_prune_passes_over_a_job_that_is_being_requeued(
    own: OwnConnection, rolls_back: bool
) -> None:
    make_job(status="failed", finished_at=OLD)
    job_id = make_job(status="failed", finished_at=OLD)
    with transaction.atomic():
        assert requeue(job_id)
        assert prune(own) == 1
        transaction.set_rollback(rolls_back)
    assert prune(own) == int(rolls_back)
    assert count_jobs(status="ready") == int(not rolls_back)


def test_of_two_requeues_at_once_one_does_it(in_thread: InThread) -> None:
    job_id = make_job(status="failed", finished_at=OLD, claim=5)
    with transaction.atomic():
        assert requeue(job_id)
        other = in_thread(lambda: requeue(job_id))
        other.wait_until_executed(LOOKED)
    assert other.result() is False
    assert get_job(job_id).claim == 6


def test_two_pruners_at_once_pass_over_the_rows_of_each_other(open_own: OpenOwn) -> None:
    for _ in range(5):
        make_job(status="failed", finished_at=OLD)
    first, second = open_own(), open_own()
    with open_transaction(first) as end:
        assert prune(first, max_jobs=2) == 2
        assert prune(second) == 3
        end("COMMIT")
    assert count_jobs() == 0


def test_a_requeued_job_is_claimed_after_the_commit_only(own: OwnConnection) -> None:
    """S1.3."""
    job_id, worker = make_job(status="failed", finished_at=OLD), make_worker()
    with transaction.atomic():
        assert requeue(job_id)
        assert claim(own, worker) == []
    assert ids(claim(own, worker)) == [job_id]


@pytest.mark.parametrize(("how", "moved"), [("COMMIT", False), ("ROLLBACK", True)])
def test_a_reschedule_that_meets_a_claim_moves_only_a_job_that_still_waits(
    own: OwnConnection, in_thread: InThread, how: str, moved: bool
) -> None:
    job_id = make_job()
    with open_transaction(own) as end:
        assert ids(claim(own, make_worker())) == [job_id]
        mover = in_thread(lambda: reschedule(job_id, None))
        mover.wait_until_executed(LOOKED)
        end(how)
    assert mover.result() is moved
