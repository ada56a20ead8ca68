"""Jobs that take too long or are cancelled while they run: they end, whatever they do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_pgjobs import cancel
from django_pgjobs.declaring.tasks import Task
from tests import tasks as common
from tests.factories import get_job
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import NEVER, Journal, children_of, wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
TIMEOUT = "django_pgjobs.exceptions.JobTimeout"
SHORT_GRACE = {"TIMEOUT_GRACE_SECONDS": 0.3}


def test_jobs_that_can_be_interrupted_end_at_their_timeout(start: Start, journal: Journal) -> None:
    """S4.22: sync in Python code, async; the worker goes on."""
    worker = start("-c", "2")
    tired = [
        task.using(timeout=0.3, max_attempts=1).enqueue(journal.folder, name)
        for task, name in ((tasks.spin, "sync"), (tasks.wait_async, "async"))
    ]
    for job in tired:
        row = wait_for_status(job, "failed", worker=worker)
        assert [error["exception_class"] for error in row.errors] == [TIMEOUT]
    row = wait_for_status(common.add.enqueue(1, 2), "successful")
    assert worker.stop() == 0


def test_a_timeout_counts_as_an_attempt_and_is_tried_again(start: Start, journal: Journal) -> None:
    """S4.22."""
    start()
    job = tasks.time_out_once.enqueue(journal.folder)
    row = wait_for_status(job, "successful")
    assert (row.attempts, len(row.errors), row.errors[0]["exception_class"]) == (2, 1, TIMEOUT)


@pytest.mark.parametrize(
    "task", [tasks.block, tasks.refuse_to_end, tasks.block_async], ids=lambda task: task.name
)
def test_a_job_that_does_not_end_ends_the_process_and_others_go_back(
    start: Start, journal: Journal, task: Task
) -> None:
    worker = start("-c", "2", pgjobs=SHORT_GRACE)
    other = tasks.pass_gate.enqueue(journal.folder, "other")
    journal.wait_for("start other 1")
    stuck = task.using(timeout=0.3, max_attempts=1).enqueue(journal.folder, "stuck")
    assert worker.wait() == 75
    row = get_job(stuck.id)
    assert (row.status, row.attempts) == ("failed", 1)
    assert [error["exception_class"] for error in row.errors] == [TIMEOUT]
    row = get_job(other.id)
    assert (row.status, row.attempts, row.worker_id) == ("ready", 0, None)
    assert "does not end: this process is given up" in worker.output()
    assert f"in {task.func.__name__}" in worker.output(), "where it is"


def test_of_several_processes_only_the_stuck_one_is_replaced(
    start: Start, journal: Journal
) -> None:
    worker = start("--processes", "2", "-c", "2", pgjobs=SHORT_GRACE, wait=False)
    others = [tasks.pass_gate.enqueue(journal.folder, str(number)) for number in range(3)]
    journal.wait_for(*(f"start {number} 1" for number in range(3)))
    before = {child.pid for child in children_of(worker)}
    assert len(before) == 2
    stuck = tasks.block.using(timeout=0.3, max_attempts=1).enqueue(journal.folder, "stuck")
    wait_for_status(stuck, "failed", worker=worker)
    wait_until(lambda: len({child.pid for child in children_of(worker)} - before) == 1)
    assert len(before & {child.pid for child in children_of(worker)}) == 1
    journal.open_gate()
    for job in others:
        row = wait_for_status(job, "successful", worker=worker)
        assert (row.attempts, row.lost_count) == (1, 0)
    assert worker.stop() == 0


def test_a_running_job_is_cancelled_from_another_process(start: Start, journal: Journal) -> None:
    """Sync and async, found by notification; the worker goes on."""
    worker = start("-c", "2", "--poll-interval", NEVER)
    jobs = [tasks.spin.enqueue(journal.folder, "a"), tasks.wait_async.enqueue(journal.folder, "b")]
    journal.wait_for("start a", "start b")
    for job in jobs:
        assert cancel(job)
    for job in jobs:
        row = wait_for_status(job, "cancelled", worker=worker)
        assert (row.note, row.errors) == ("cancelled while running", [])
    wait_for_status(common.add.enqueue(1, 2), "successful")


def test_a_running_job_is_cancelled_without_listen(start: Start, journal: Journal) -> None:
    start("--no-listen")
    job = tasks.spin.enqueue(journal.folder, "a")
    journal.wait_for("start a")
    assert cancel(job)
    wait_for_status(job, "cancelled")


def test_a_cancelled_job_that_does_not_end_is_cancelled_with_its_process(
    start: Start, journal: Journal
) -> None:
    worker = start(pgjobs=SHORT_GRACE)
    job = tasks.block.enqueue(journal.folder, "stuck")
    journal.wait_for("start stuck")
    assert cancel(job)
    assert worker.wait() == 75
    assert get_job(job.id).status == "cancelled"
