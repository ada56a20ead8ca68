"""A job that ends its process is started a few times and no more; those beside it go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.factories import get_job
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import Journal, backends_of, fetch_rows, terminate, wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

WORKER_LOST = "django_pgjobs.exceptions.WorkerLost"


def is_written(journal: Journal, times: int) -> bool:
    return journal.count("broken") >= times


def has_started(journal: Journal, times: int) -> bool:
    return journal.count("start poison") == times


def bring_forward(job: Any) -> None:
    """End the pause of a job that was lost."""
    fetch_rows("UPDATE pgjobs_job SET due_at = now() WHERE id = %s RETURNING id", int(job.id))


def is_failed(job: Any) -> bool:
    """Return whether the job has ended, and let no pause keep it."""
    row = get_job(job.id)
    if row.status == "ready":
        bring_forward(job)
    return bool(row.status == "failed")


def is_lost(job: Any, times: int) -> bool:
    return bool(get_job(job.id).lost_count >= times)


def is_lost_by_now(job: Any, times: int) -> bool:
    """Let the upkeeps connect anew."""
    terminate(backends_of("upkeep"))
    return is_lost(job, times)


@pytest.mark.time_limit(120)
def test_a_job_that_makes_a_part_of_its_worker_crash_is_bounded_by_its_losses(
    start: Start, journal: Journal
) -> None:
    """As one that uses up the files: a role that needs a connection finds no room, and crashes."""
    job = tasks.break_upkeep.using(max_losses=2).enqueue(journal.folder)
    worker = start("--processes", "2", "-c", "2", "--lease-seconds", "1", wait=False)
    for times in (1, 2):
        wait_until(partial(is_written, journal, times), timeout=30, message=worker.output)
        # Again and again: the one that has no files left may be about to connect.
        wait_until(partial(is_lost_by_now, job, times), timeout=30, message=worker.output)
    row = wait_for_status(job, "failed", worker=worker)
    assert (row.attempts, row.errors[-1]["exception_class"]) == (2, WORKER_LOST)
    assert "role=upkeep crashed" in worker.output()


@pytest.mark.time_limit(180)
def test_a_job_that_outgrows_its_process_is_bounded_by_its_losses(
    start: Start, journal: Journal
) -> None:
    job = tasks.outgrow.using(max_losses=2).enqueue(journal.folder, 400)
    beside = tasks.pass_gate.using(max_attempts=1).enqueue(journal.folder, "beside")
    limits = ("--max-memory", "300", "--shutdown-timeout", "0.1")
    worker = start("--processes", "2", "-c", "2", *limits, wait=False)
    wait_until(partial(is_failed, job), timeout=150, message=worker.output)
    row = get_job(job.id)
    # Twice, if it is alone the second time.
    assert 2 <= row.lost_count <= 6
    assert row.attempts == journal.count("start outgrow") == row.lost_count
    assert row.errors[-1]["exception_class"] == WORKER_LOST
    journal.open_gate()
    if get_job(beside.id).status == "ready":
        bring_forward(beside)
    # However often it was lost with the other, that used up no attempt.
    assert wait_for_status(beside, "successful", timeout=90, worker=worker)


def test_a_job_that_kills_its_worker_fails_and_the_one_beside_it_does_not(
    start: Start, journal: Journal, tmp_path: Path
) -> None:
    """Both are lost max_losses times together; then it turns out which one it was."""
    (tmp_path / "beside").mkdir()
    other = Journal(tmp_path / "beside")
    poison = tasks.die.using(max_losses=2).enqueue(journal.folder, "poison")
    beside = tasks.pass_gate.using(max_losses=2).enqueue(other.folder, "beside")
    flags = ("-c", "2", "--lease-seconds", "1", "--poll-interval", "0.2")
    for attempt in (1, 2):
        victim = start(*flags)
        other.wait_for(f"start beside {attempt}", timeout=30)
        wait_until(partial(has_started, journal, attempt), timeout=30, message=victim.output)
        journal.open_gate(attempt)
        wait_until(lambda worker=victim: not worker.is_running)
    worker = start("--processes", "2", *flags, wait=False)
    for job in (poison, beside):
        wait_until(partial(is_lost, job, 2), message=worker.output)
        assert get_job(job.id).status == "ready"
    journal.open_gate()
    bring_forward(poison)
    row = wait_for_status(poison, "failed", worker=worker)
    assert (row.lost_count, journal.count("start poison")) == (3, 3)
    other.open_gate()
    bring_forward(beside)
    assert wait_for_status(beside, "successful", worker=worker).lost_count == 2


def test_an_orderly_shutdown_gives_a_running_job_back_and_counts_the_interruption(
    start: Start, journal: Journal
) -> None:
    job = tasks.spin.using(max_attempts=1, max_losses=1).enqueue(journal.folder, "job")
    worker = start("--shutdown-timeout", "0")
    journal.wait_for("start job")
    assert worker.stop() == 0
    row = get_job(job.id)
    assert (row.status, row.attempts, row.lost_count, row.interruptions) == ("ready", 0, 0, 1)


def test_the_jobs_beside_one_that_does_not_end_are_given_back(
    start: Start, journal: Journal
) -> None:
    stuck = tasks.block.using(timeout=0.3, max_attempts=1).enqueue(journal.folder, "stuck")
    beside = tasks.spin.using(max_losses=1).enqueue(journal.folder, "beside")
    worker = start("-c", "2", pgjobs={"TIMEOUT_GRACE_SECONDS": 0.2})
    journal.wait_for("start stuck", "start beside")
    wait_until(lambda: not worker.is_running)
    assert get_job(stuck.id).status == "failed"
    row = get_job(beside.id)
    assert (row.status, row.lost_count, row.interruptions) == ("ready", 0, 1)
