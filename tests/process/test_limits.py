"""Workers that stop by themselves, and workers that serve some queues only."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from django_pgjobs.models import RateLimit
from tests import tasks as common
from tests.factories import count_jobs, get_job, make_jobs
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import (
    NEVER,
    Journal,
    children_of,
    fetch_rows,
    wait_for_count,
    wait_for_status,
)

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]


def test_drain_runs_what_may_run_now_with_its_retries_and_ends(start: Start) -> None:
    """S1.18: a process that lives as long as there is work."""
    make_jobs(30)
    asynchronous = common.add_async.enqueue(1, 2)
    failing = common.fail.enqueue()
    later = common.add.using(run_after=timedelta(hours=1)).enqueue(1, 2)
    assert start("--drain", "--poll-interval", NEVER).wait() == 0
    assert count_jobs(status="successful") == 31
    assert get_job(asynchronous.id).result == 3
    row = get_job(failing.id)
    assert (row.status, row.attempts) == ("failed", 3)
    assert (get_job(later.id).status, get_job(later.id).attempts) == ("ready", 0)


def test_drain_waits_for_the_tokens_of_a_rate_limit(start: Start, journal: Journal) -> None:
    RateLimit.objects.create(name="api", count=2, period=1)
    for _ in range(5):
        tasks.hold_rate.enqueue(journal.folder, "1", 0.0)
    assert start("--drain", "--poll-interval", NEVER).wait() == 0
    assert count_jobs(status="successful") == 5


def test_drain_of_an_empty_queue_ends(start: Start) -> None:
    assert start("--drain", "--poll-interval", NEVER).wait() == 0


def test_drain_with_processes_runs_everything_once_and_ends(start: Start, journal: Journal) -> None:
    """S4.4, S4.12."""
    tasks.note.enqueue_many((journal.folder, str(number), 0.01) for number in range(100))
    assert start("--drain", "--processes", "2").wait() == 0
    assert count_jobs(status="successful", attempts=1) == 100
    assert sorted(journal.lines()) == sorted(map(str, range(100)))


def test_max_jobs_is_exact_and_gives_nothing_to_anybody_else(start: Start) -> None:
    make_jobs(10)
    worker = start("--max-jobs", "3", "-c", "4")
    assert worker.wait() == 0
    assert "3 jobs done" in worker.output()
    assert (count_jobs(status="successful"), count_jobs(status="ready", attempts=0)) == (3, 7)


def test_max_time_lets_running_jobs_finish(start: Start, journal: Journal) -> None:
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    worker = start("--max-time", "3")
    worker.wait_for_output("3 s are over: no new jobs; waiting for 1")
    journal.open_gate()
    assert worker.wait() == 0
    assert get_job(job.id).status == "successful"


def test_max_memory_ends_the_worker(start: Start) -> None:
    worker = start("--max-memory", "1")
    assert worker.wait() == 0
    assert "MiB of memory are in use" in worker.output()


def test_processes_that_reach_max_jobs_are_replaced_until_told_to_stop(start: Start) -> None:
    """Each of them runs three jobs at most, and all jobs run once."""
    make_jobs(12)
    worker = start("--processes", "2", "--max-jobs", "3", wait=False)
    wait_for_count(12, status="successful", timeout=30)
    wait_until(
        lambda: fetch_rows("SELECT count(*) >= 5 FROM pgjobs_worker") == [(True,)],
        message=worker.output,
    )
    runs = fetch_rows(
        "SELECT worker_id, count(*) FROM pgjobs_job WHERE attempts = 1 GROUP BY worker_id"
    )
    assert [jobs for _, jobs in runs] == [3, 3, 3, 3]
    assert worker.stop() == 0


def test_queues_and_exclude_queues_share_the_work(start: Start) -> None:
    """S1.19: queues may be pinned to workers."""
    mail, other = tasks.mail.enqueue(), common.add.enqueue(1, 2)
    third = common.add.using(queue_name="reports").enqueue(1, 2)
    assert start("--drain", "-q", "mail,reports").wait() == 0
    assert [get_job(job.id).status for job in (mail, other, third)] == [
        "successful",
        "ready",
        "successful",
    ]
    again = tasks.mail.enqueue()
    assert start("--drain", "--exclude-queues", "mail").wait() == 0
    assert [get_job(job.id).status for job in (again, other)] == ["ready", "successful"]


def test_a_worker_of_one_queue_leaves_the_others_alone(start: Start) -> None:
    start("-q", "mail", "--poll-interval", NEVER)
    other = common.add.enqueue(1, 2)
    wait_for_status(tasks.mail.enqueue(), "successful")
    assert get_job(other.id).status == "ready"


def test_the_children_serve_the_queues_of_their_supervisor(start: Start) -> None:
    worker = start("--processes", "2", "-q", "mail", "--name", "pool", wait=False)
    other = common.add.enqueue(1, 2)
    row = wait_for_status(tasks.mail.enqueue(), "successful", worker=worker)
    assert row.worker_ids[0] in ("pool-1", "pool-2")
    assert len(children_of(worker)) == 2
    assert get_job(other.id).status == "ready"
