"""The Overview: its numbers are those of the tables."""

from __future__ import annotations

import pytest
from psycopg import sql

from django_pgjobs.models import Pause, QueueSettings
from tests.admin.overview_support import ago, numbers
from tests.factories import make_job, make_jobs, make_running_job, make_worker

pytestmark = pytest.mark.django_db


def tiles() -> dict[str, int]:
    """Return the numbers at the top by their names."""
    return {tile.key: tile.number for tile in numbers()["tiles"]}


def test_tiles_count_the_statuses_and_their_views() -> None:
    later = sql.SQL("now() + interval '1 hour'")
    make_jobs(4)
    make_running_job()
    make_jobs(2, run_after=later)
    make_jobs(3, due_at=later, attempts=2)
    make_jobs(5, hold="dependencies", waits_for=1)
    make_jobs(6, status="failed", finished_at=ago(60))
    make_jobs(7, status="failed", finished_at=ago(4_000))
    make_jobs(8, status="successful", finished_at=ago(60))
    assert tiles() == {
        "ready": 4, "running": 1, "scheduled": 2, "retrying": 3, "blocked": 5, "failed": 6,
    }  # fmt: skip


def test_the_oldest_waiting_job_is_the_one_that_could_run_for_longest() -> None:
    make_job(enqueued_at=ago(100))
    make_job(enqueued_at=ago(5_000), run_after=ago(200))
    make_job(enqueued_at=ago(5_000), attempts=1, ready_at=ago(10))
    make_job(enqueued_at=ago(9_000), hold="dependencies", waits_for=1)
    make_job(enqueued_at=ago(9_000), due_at=sql.SQL("now() + interval '1 hour'"))
    make_running_job(enqueued_at=ago(9_000))
    found = numbers()
    assert (found["facts"].now - found["oldest"]).total_seconds() == pytest.approx(200, abs=5)


def test_a_queue_of_which_none_may_run_has_no_oldest() -> None:
    make_job(due_at=sql.SQL("now() + interval '1 hour'"))
    make_job(queue_name="b", hold="dependencies", waits_for=1)
    make_running_job(queue_name="c")
    assert [queue.waiting_since for queue in numbers()["queues"]] == [None] * 3


def test_finished_per_minute_is_the_mean_of_five() -> None:
    make_jobs(10, status="successful", finished_at=ago(30))
    make_jobs(5, status="cancelled", finished_at=ago(250))
    make_jobs(99, status="successful", finished_at=ago(400))
    assert numbers()["finished_a_minute"] == 3


@pytest.mark.parametrize(("key", "jobs"), [("1h", 1), ("6h", 3), ("24h", 6), ("7d", 10)])
def test_the_chart_counts_what_finished_in_its_time(key: str, jobs: int) -> None:
    for count, seconds in ((1, 1_800), (2, 10_000), (3, 50_000), (4, 300_000), (5, 700_000)):
        make_jobs(count, status="failed", finished_at=ago(seconds))
    found = numbers(key)["chart"]
    assert (found.jobs, found.legend[2][2]) == (jobs, jobs)


def test_a_queue_says_what_waits_runs_and_ended() -> None:
    QueueSettings.objects.create(queue_name="mail", max_running=9)
    make_jobs(2, queue_name="mail")
    make_running_job(queue_name="mail")
    make_job(queue_name="mail", backend="other")
    make_jobs(3, queue_name="mail", status="successful", finished_at=ago(60))
    make_jobs(1, queue_name="mail", status="failed", finished_at=ago(60))
    make_jobs(9, queue_name="mail", status="failed", finished_at=ago(9_000))
    make_job(queue_name="past", status="failed", finished_at=ago(9_000))
    [queue] = numbers("24h")["queues"]
    assert (queue.name, queue.ready, queue.running, queue.max_running) == ("mail", 3, 1, 9)
    assert (queue.finished_hour, queue.failed_percent) == (4, 25)


def test_queues_with_settings_or_a_pause_are_there_without_jobs() -> None:
    QueueSettings.objects.create(queue_name="a", max_running=9)
    Pause.objects.create(kind="queue", name="b", reason="full disk", paused_by="ann")
    Pause.objects.create(kind="task", name="c")
    queues = {queue.name: queue for queue in numbers()["queues"]}
    assert set(queues) == {"a", "b"}
    assert (queues["b"].is_paused, queues["b"].reason, queues["a"].is_paused) == (
        True, "full disk", False,
    )  # fmt: skip


def test_a_pause_that_is_over_is_none() -> None:
    Pause.objects.create(kind="queue", name="b", resume_at="2020-01-01T00:00Z")
    assert numbers()["queues"] == []


def test_keys_that_jobs_wait_with_come_by_their_number() -> None:
    make_jobs(2, concurrency_key="shop:1")
    make_jobs(3, rate_limit_keys="api:7\nmail")
    make_running_job(concurrency_key="shop:1")
    make_running_job(concurrency_key="shop:2")
    make_jobs(9)
    keys = [(row.first, row.second, row.ready, row.running) for row in numbers()["keys"]]
    assert keys == [(None, "api:7\nmail", 3, 0), ("shop:1", None, 2, 1)]


def test_workers_say_what_they_run() -> None:
    first = make_worker("a:1", slots=4)
    make_worker("gone:1", ended_at=ago(5))
    make_worker("lost:1", lease_seconds=-10)
    make_running_job(first)
    found = numbers()
    [(worker, heartbeat)] = found["workers"]
    assert (worker.name, worker.running, worker.slots, heartbeat) == ("a:1", 1, 4, "ok")
    assert (found["facts"].live_workers, found["facts"].unended_workers) == (1, 2)


def test_a_worker_whose_heartbeat_is_late_is_shown_so() -> None:
    make_worker("a:1", heartbeat_at=ago(45))
    [(_, heartbeat)] = numbers()["workers"]
    assert heartbeat == "late"


def test_failures_of_the_last_day_are_grouped() -> None:
    for number, seconds in enumerate((60, 60, 90_000)):
        error = {"exception_class": "a.Boom", "message": f"no {number}", "traceback": ""}
        make_job(status="failed", finished_at=ago(seconds), errors=[error])
    [group] = numbers()["groups"]
    assert (group.row.jobs, group.class_name) == (2, "Boom")
