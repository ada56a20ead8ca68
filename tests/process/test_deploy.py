"""Workers of two releases side by side: each runs the tasks that it knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import tasks as common
from tests.factories import count_jobs, get_job, make_job
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import Journal, wait_for_count, wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

# A worker of this release does not know tests.process.tasks.
OLD = {"TASK_MODULES": ["tests.process.impatient"]}


def test_jobs_of_a_new_task_wait_visibly_for_a_worker_that_knows_it(
    start: Start, journal: Journal
) -> None:
    """S5.7: logged, offered again and again, and never counted."""
    old = start("--name", "old", pgjobs=OLD)
    jobs = [tasks.note.enqueue(journal.folder, str(number)) for number in range(3)]
    wait_until(lambda: old.output().count("unknown tests.process.tasks.note") >= 6)
    # They stand in nobody's way.
    wait_for_status(common.add.enqueue(1, 2), "successful")
    assert old.stop() == 0
    for job in jobs:
        row = get_job(job.id)
        assert (row.status, row.attempts, row.errors, row.worker_ids) == ("ready", 0, [], [])
        assert row.note == "unknown task"
    start("--name", "new")
    wait_for_count(3, status="successful", task_path="tests.process.tasks.note")
    for job in jobs:
        row = get_job(job.id)
        assert (row.attempts, row.worker_ids) == (1, ["new"])
    assert sorted(journal.lines()) == ["0", "1", "2"]


def test_two_releases_share_the_work(start: Start, journal: Journal) -> None:
    """Rolling deploys."""
    workers = [
        start("--name", "old", pgjobs=OLD, wait=False),
        start("--name", "new", modules=("tests.process.impatient",), wait=False),
    ]
    for worker in workers:
        worker.wait_until_ready()
    for number in range(30):
        tasks.note.enqueue(journal.folder, str(number))
        common.add.enqueue(1, number)
    wait_for_count(60, status="successful", timeout=60)
    assert len(set(journal.lines())) == len(journal.lines()) == 30
    assert {worker.stop() for worker in workers} == {0}


def test_a_worker_that_does_not_know_a_task_leaves_its_jobs_to_one_that_does(
    start: Start, journal: Journal
) -> None:
    """What it met once waits a second; it takes no other job of that task."""
    times = {"TESTS_UNKNOWN_TASK_MIN": "1", "TESTS_UNKNOWN_TASK_MAX": "300"}
    start("--name", "old", pgjobs=OLD, env=times)
    tasks.note.enqueue_many((journal.folder, str(number)) for number in range(20))
    wait_until(lambda: count_jobs(note="unknown task") > 0)
    start("--name", "new", "-c", "2")
    wait_for_count(20, status="successful", timeout=6)
    tasks.note.enqueue_many((journal.folder, str(number)) for number in range(20))
    wait_for_count(40, status="successful", timeout=6)
    assert count_jobs(worker_ids=["new"], attempts=1) == 40


def test_a_project_may_let_jobs_of_unknown_tasks_fail(start: Start) -> None:
    """Rolling deploys."""
    job = make_job("removed.tasks.old")
    start("--drain", pgjobs={"UNKNOWN_TASK": "fail"}).wait()
    row = get_job(job)
    assert (row.status, row.attempts) == ("failed", 1)
    assert row.errors[0]["exception_class"] == "django_pgjobs.exceptions.UnknownTask"
    assert "removed.tasks.old" in row.errors[0]["message"]


def test_a_name_in_a_row_is_never_imported(start: Start) -> None:
    """Only what is declared can be called."""
    paths = ["os.system", "tests.tasks.append_line", "antigravity.geohash", "this.c", "tests", "."]
    jobs = [make_job(path, args=["true"]) for path in paths]
    worker = start("--drain")
    assert worker.wait() == 0
    assert [get_job(job).note for job in jobs] == ["unknown task"] * len(jobs)
    assert "Beautiful is better than ugly" not in worker.output()
