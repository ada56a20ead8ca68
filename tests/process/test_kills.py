"""Workers that are killed or paused, and what becomes of their jobs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import tasks as common
from tests.factories import count_jobs, get_job, make_job
from tests.helpers import WorkerProcess, wait_until
from tests.models import Effect
from tests.process import tasks
from tests.process.support import (
    Journal,
    fetch_rows,
    wait_for_count,
    wait_for_status,
)

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
SHORT_LEASE = ("--lease-seconds", "1")


def test_the_job_of_a_killed_worker_runs_on_another_one(start: Start, journal: Journal) -> None:
    """S1.3, S3.6, S4.24: within its lease and a moment, by itself."""
    victim = start(*SHORT_LEASE)
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    survivor = start(*SHORT_LEASE)
    victim.kill()
    journal.wait_for("start job 2")
    journal.open_gate()
    row = wait_for_status(job, "successful")
    assert (row.attempts, row.lost_count, row.result) == (2, 1, 2)
    assert len(set(row.worker_ids)) == 2
    assert [error["exception_class"] for error in row.errors] == [
        "django_pgjobs.exceptions.WorkerLost"
    ]
    assert "is lost: its lease ran out" in survivor.output()
    assert fetch_rows("SELECT lost FROM pgjobs_worker ORDER BY id") == [(True,), (False,)]


def test_the_first_worker_after_all_have_died_rescues_their_jobs(
    start: Start, journal: Journal
) -> None:
    """S1.12: nobody else has to be there when the lease runs out."""
    victim = start(*SHORT_LEASE)
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    victim.kill()
    wait_until(lambda: fetch_rows("SELECT FROM pgjobs_worker WHERE lease_expires_at < now()"))
    journal.open_gate()
    start()
    assert wait_for_status(job, "successful").attempts == 2


@pytest.mark.time_limit(180)
def test_a_job_that_kills_its_worker_stops_and_others_proceed(
    start: Start, journal: Journal
) -> None:
    """S5.14: at max_losses, or at three times as many if a note was always lost with it."""
    journal.open_gate()
    poison = tasks.die.using(max_losses=2, priority=10).enqueue(journal.folder, "poison")
    notes = tasks.note.enqueue_many((journal.folder, str(number)) for number in range(20))
    worker = start("--processes", "2", "-c", "2", *SHORT_LEASE, wait=False)
    row = wait_for_status(poison, "failed", timeout=150, worker=worker)
    assert 2 <= row.lost_count <= 6
    assert journal.count("start poison") == row.attempts == row.lost_count
    assert row.errors[-1]["exception_class"] == "django_pgjobs.exceptions.WorkerLost"
    wait_for_count(len(notes), status="successful", task_path="tests.process.tasks.note")
    assert worker.is_running


def test_with_one_loss_allowed_a_job_runs_at_most_once(start: Start, journal: Journal) -> None:
    """S5.16: whether the API, a plain INSERT or only the task's declaration says so."""
    victim = start(*SHORT_LEASE, "-c", "3")
    path = tasks.pass_gate.module_path
    jobs = [
        tasks.pass_gate.using(max_losses=1).enqueue(journal.folder, "api"),
        make_job(path, args=[journal.folder, "sql"], max_losses=1),
        make_job(tasks.pass_gate_once.module_path, args=[journal.folder, "task"]),
    ]
    started = ["start api 1", "start sql 1", "start task 1"]
    journal.wait_for(*started)
    victim.kill()
    journal.open_gate()
    start(*SHORT_LEASE)
    for job in jobs:
        row = wait_for_status(job, "failed")
        assert row.errors[-1]["exception_class"] == "django_pgjobs.exceptions.WorkerLost"
    assert sorted(journal.lines()) == started


def test_a_paused_worker_changes_nothing_after_its_lease_and_goes_on(
    start: Start, journal: Journal
) -> None:
    """Fencing."""
    paused = start(*SHORT_LEASE, "--name", "paused")
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    paused.pause()
    other = start("--lease-seconds", "3", "--name", "other")
    journal.wait_for("start job 2")
    journal.open_gate(attempt=1)
    paused.resume()
    paused.wait_for_output("not written: the claim is lost")
    wait_until(
        lambda: len(fetch_rows("SELECT FROM pgjobs_worker WHERE name = 'paused'")) == 2,
        message=paused.output,
    )
    row = get_job(job.id)
    assert (row.status, row.attempts, row.result) == ("running", 2, None)
    journal.open_gate(attempt=2)
    row = wait_for_status(job, "successful")
    assert (row.attempts, row.result, row.worker_ids) == (2, 2, ["paused", "other"])
    assert other.stop() == 0
    row = wait_for_status(common.add.enqueue(1, 2), "successful", worker=paused)
    assert row.worker_ids == ["paused"]
    assert paused.stop() == 0


def test_the_effects_of_a_killed_atomic_attempt_are_gone(start: Start, journal: Journal) -> None:
    """S5.9, S5.10."""
    victim = start(*SHORT_LEASE)
    job = tasks.record_at_gate.enqueue(journal.folder, "key")
    journal.wait_for("start key 1")
    victim.kill()
    journal.open_gate()
    start(*SHORT_LEASE)
    wait_for_status(job, "successful")
    assert list(Effect.objects.values_list("key", "attempt")) == [("key", 2)]


def test_the_effects_of_a_paused_atomic_attempt_are_rolled_back(
    start: Start, journal: Journal
) -> None:
    """Exactly-once database effects, fencing."""
    paused = start(*SHORT_LEASE)
    job = tasks.record_at_gate.enqueue(journal.folder, "key")
    journal.wait_for("start key 1")
    paused.pause()
    start("--lease-seconds", "3")
    journal.wait_for("start key 2")
    journal.open_gate()
    wait_for_status(job, "successful")
    paused.resume()
    paused.wait_for_output("claim is lost")
    assert paused.stop() == 0
    assert list(Effect.objects.values_list("key", "attempt")) == [("key", 2)]


def test_a_kill_leaves_the_jobs_that_were_claimed_but_not_begun(
    start: Start, journal: Journal
) -> None:
    """Jobs in the buffer of a killed worker are not lost either."""
    victim = start(*SHORT_LEASE, "-c", "1")
    common.echo.enqueue_many([()] * 50)
    wait_for_count(50, status="successful")
    tasks.pass_gate.enqueue_many((journal.folder, str(number)) for number in range(10))
    wait_until(lambda: count_jobs(status="running") > 1 and len(journal.lines()) == 1)
    victim.kill()
    journal.open_gate()
    start(*SHORT_LEASE)
    wait_for_count(60, status="successful")
    assert len([line for line in journal.lines() if line.startswith("end")]) == 10
