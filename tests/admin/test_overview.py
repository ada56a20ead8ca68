"""The Overview: its numbers are those of the tables."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from psycopg import sql

from django_pgjobs.admin.overview.chart import SPLITS
from django_pgjobs.control.numbers import Hour, rate_of
from django_pgjobs.models import Pause, QueueSample, QueueSettings
from django_pgjobs.queries import numbers as queries
from django_pgjobs.queries import statistics
from django_pgjobs.queries.numbers import Number
from django_pgjobs.queries.statistics import (
    Cell,
    Minute,
    count_enqueued,
    measure_queues,
    write_statistics,
)
from tests.admin.overview_support import numbers, read, record, words
from tests.factories import ago, make_job, make_jobs, make_running_job, make_worker
from tests.test_queue_samples import measure

pytestmark = pytest.mark.django_db


def tiles() -> dict[str, float | None]:
    """Return the numbers at the top by their names."""
    return {tile.key: tile.number for tile in numbers()["tiles"]}


def test_tiles_count_the_statuses_and_their_views() -> None:
    later = sql.SQL("now() + interval '1 hour'")
    make_jobs(4)
    make_running_job()
    make_jobs(2, run_after=later)
    make_jobs(3, due_at=later, attempts=2)
    make_jobs(5, hold="dependencies", waits_for=1)
    make_jobs(6, status="failed", finished_at=ago(90))
    make_jobs(7, status="failed", finished_at=ago(4_000))
    make_jobs(8, status="successful", finished_at=ago(90))
    record()
    make_jobs(9, status="failed", finished_at=ago(2))
    found = tiles()
    del found["finished"], found["enqueued"]
    assert found == {
        "ready": 4, "running": 1, "scheduled": 2, "retrying": 3, "blocked": 5, "failed": 15,
    }  # fmt: skip


def test_many_jobs_are_those_of_the_last_sample_and_say_how_old_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "FEW", 3)
    make_jobs(9, queue_name="mail")
    found = numbers()
    tile = found["tiles"][0]
    assert (tile.number, tile.age, tile.is_cut) == (4, "", True)
    with connection.cursor() as cursor:
        measure_queues(cursor)
    QueueSample.objects.update(measured_at=timezone.now() - timedelta(seconds=40))
    make_jobs(1, queue_name="mail")
    tile = numbers()["tiles"][0]
    assert (tile.key, tile.number, tile.is_cut) == ("ready", 9, False)
    assert tile.age in {f"as of {seconds} s ago" for seconds in range(40, 60)}
    QueueSample.objects.update(is_cut=True)
    assert numbers()["tiles"][0].is_cut


def test_what_just_finished_is_missing_while_that_is_much_and_the_page_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "FEW", 3)
    make_jobs(9, status="failed", finished_at=ago(150))
    record()
    make_jobs(9, status="failed", finished_at=ago(1))
    began = timezone.now()
    instants = (began + timedelta(seconds=passed) for passed in itertools.count())
    monkeypatch.setattr(timezone, "now", lambda: next(instants))
    found = numbers()
    [tile] = [tile for tile in found["tiles"] if tile.key == "failed"]
    assert tile.number == 9
    assert tile.age.startswith("as of ")
    assert found["hour_age"] == found["chart_age"] == tile.age


def test_what_is_counted_just_now_has_no_age() -> None:
    make_jobs(3)
    make_jobs(3, status="successful", finished_at=ago(1))
    found = numbers()
    assert {tile.age for tile in found["tiles"]} == {""}
    assert {found[name] for name in ("size_age", "hour_age", "chart_age")} == {""}


def test_the_oldest_waiting_job_is_the_one_that_could_run_for_longest() -> None:
    make_job(enqueued_at=ago(100))
    make_job(enqueued_at=ago(5_000), run_after=ago(200))
    make_job(enqueued_at=ago(5_000), attempts=1, ready_at=ago(10))
    make_job(enqueued_at=ago(9_000), hold="dependencies", waits_for=1)
    make_job(enqueued_at=ago(9_000), due_at=sql.SQL("now() + interval '1 hour'"))
    make_running_job(enqueued_at=ago(9_000))
    found = numbers()
    waits = found["facts"].now - found["waiting_since"]
    assert waits.total_seconds() == pytest.approx(200, abs=5)


def test_a_queue_of_which_none_may_run_has_no_oldest() -> None:
    make_job(due_at=sql.SQL("now() + interval '1 hour'"))
    make_job(queue_name="b", hold="dependencies", waits_for=1)
    make_running_job(queue_name="c")
    assert [queue.row.waiting_since for queue in numbers()["queues"]] == [None] * 3


def test_finished_per_minute_is_the_mean_of_five_that_are_over() -> None:
    make_jobs(10, status="successful", finished_at=ago(80))
    make_jobs(5, status="cancelled", finished_at=ago(250))
    make_jobs(99, status="successful", finished_at=ago(400))
    record()
    assert tiles()["finished"] == 3


def test_enqueued_per_minute_is_known_up_to_the_last_sample_that_has_settled() -> None:
    with connection.cursor() as cursor:
        for _ in range(2):
            measure(cursor)
        count_enqueued(cursor)
        make_jobs(10, enqueued_at=ago(150))
        make_jobs(99, enqueued_at=ago(500))
        assert tiles()["enqueued"] is None
        for _ in range(2):
            measure(cursor)
        count_enqueued(cursor)
        assert tiles()["enqueued"] == 2
        # A leader that has just begun: what came in since the one before is not counted.
        measure_queues(cursor)
        count_enqueued(cursor)
    assert tiles()["enqueued"] == 2


def test_a_rate_is_of_minutes_within_the_hour() -> None:
    now = Number(1_000, None, None, 0, 0, 0, 0, 0, 0, datetime.fromtimestamp(60_030, UTC))
    hour = Hour([now], {}, {})
    counts = {941: 10, 946: 5}
    for minutes, per_minute in ((945, None), (946, 2.0), (947, 1.0)):
        until = datetime.fromtimestamp(60 * minutes + 30, UTC)
        assert rate_of(counts, until, hour).per_minute == per_minute


def test_how_long_it_took_is_told_of_the_last_hour() -> None:
    fast, slow = Cell([90, 0, 0, 0]), Cell([0, 10, 0, 0])
    fast.waits[2] = fast.runs[4] = 90
    slow.waits[12] = slow.runs[14] = 10
    minute = int(timezone.now().timestamp()) // 60 - 5
    cells = {("mail", "a"): fast, ("fax", "b"): slow}
    with connection.cursor() as cursor:
        write_statistics(cursor, [Minute(minute, cells)])
    found = numbers()
    # The ends of their classes: at most that is true of all that is in one.
    assert (found["waited"].half, found["ran"].half) == (0.004, 0.016)
    assert (found["waited"].most, found["ran"].most) == (4.096, 16.384)
    assert {queue.name: queue.waited.most > 1 for queue in found["queues"]} == {
        "fax": True,
        "mail": False,
    }


@pytest.mark.parametrize("by", SPLITS)
@pytest.mark.parametrize(
    ("key", "jobs"), [("1h", 1), ("6h", 3), ("24h", 6), ("7d", 10), ("30d", 15)]
)
def test_the_chart_counts_what_finished_in_its_time(key: str, jobs: int, by: str) -> None:
    for count, seconds in ((1, 1_800), (2, 10_000), (3, 50_000), (4, 300_000), (5, 700_000)):
        make_jobs(count, "a.b", queue_name="c", status="failed", finished_at=ago(seconds))
    make_jobs(6, status="failed", finished_at=ago(3_000_000))
    record()
    found = numbers(key, by)["chart"]
    label, query = {
        "outcome": ("Failed", "tab=failed"),
        "queue": ("c", "tab=all&queue=c"),
        "task": ("a.b", "tab=all&task=a.b"),
    }[by]
    [part] = [each for each in found.legend if each.total]
    assert (found.jobs, part.total, part.label) == (jobs, jobs, label)
    assert part.query.startswith(f"{query}&finished_at__range__gte_0=")


def test_a_queue_says_what_waits_runs_and_ended() -> None:
    QueueSettings.objects.create(queue_name="mail", max_running=9)
    make_jobs(2, queue_name="mail")
    make_running_job(queue_name="mail")
    make_job(queue_name="mail", backend="other")
    make_jobs(3, queue_name="mail", status="successful", finished_at=ago(90))
    make_jobs(1, queue_name="mail", status="failed", finished_at=ago(90))
    make_jobs(9, queue_name="mail", status="failed", finished_at=ago(9_000))
    make_job(queue_name="past", status="failed", finished_at=ago(9_000))
    record()
    [queue] = numbers("24h")["queues"]
    assert (queue.name, queue.size.ready, queue.size.running) == ("mail", 3, 1)
    assert (queue.row.max_running, queue.finished, queue.failed_percent) == (9, 4, 25)


def test_queues_with_settings_or_a_pause_are_there_without_jobs() -> None:
    QueueSettings.objects.create(queue_name="a", max_running=9)
    Pause.objects.create(kind="queue", name="b", reason="full disk", paused_by="ann")
    Pause.objects.create(kind="task", name="c")
    make_worker(queues=["d"])
    queues = {queue.name: queue.row for queue in numbers()["queues"]}
    assert set(queues) == {"a", "b"}
    assert (queues["b"].reason, queues["a"].paused_at) == ("full disk", None)


def test_a_pause_that_is_over_is_none() -> None:
    Pause.objects.create(kind="queue", name="b", resume_at="2020-01-01T00:00Z")
    assert numbers()["queues"] == []


def test_workers_say_what_they_run() -> None:
    first = make_worker("a:1", slots=4)
    make_worker("gone:1", ended_at=ago(5))
    make_worker("lost:1", lease_seconds=-10)
    make_running_job(first)
    found = numbers()
    [(worker, is_late)] = found["workers"]
    assert (worker.name, worker.running, worker.slots, is_late) == ("a:1", 1, 4, False)
    assert (found["facts"].live_workers, found["facts"].unended_workers) == (1, 2)


def test_a_worker_whose_heartbeat_is_late_is_shown_so() -> None:
    make_worker("a:1", heartbeat_at=ago(45))
    [(_, is_late)] = numbers()["workers"]
    assert is_late
    make_worker("b:1", heartbeat_at=ago(45), lease_seconds=300)
    by_name = {worker.name: is_late for worker, is_late in numbers()["workers"]}
    assert by_name == {"a:1": True, "b:1": False}  # each by its own lease


def test_failures_of_the_last_day_are_grouped() -> None:
    for number, seconds in enumerate((60, 60, 90_000)):
        error = {"exception_class": "a.Boom", "message": f"no {number}", "traceback": ""}
        make_job(status="failed", finished_at=ago(seconds), errors=[error])
    [group] = numbers()["groups"]
    assert (group.row.jobs, group.class_name) == (2, "Boom")


def test_numbers_that_are_cut_or_old_say_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "FEW", 5)
    monkeypatch.setattr(statistics, "MAX_JOBS", 10)
    make_job(enqueued_at=ago(7_200))
    make_jobs(15, queue_name="mail")
    text = words(read(admin_client))
    assert "Ready more than 6" in text
    assert "What waits and runs" not in text
    with connection.cursor() as cursor:
        measure_queues(cursor)
    QueueSample.objects.update(measured_at=timezone.now() - timedelta(minutes=150))
    text = words(read(admin_client))
    assert "Ready more than 11 as of 2 h 30 min ago" in text
    assert "Running more than 0 as of 2 h 30 min ago" in text
    assert "Oldest waiting 2 h" in text
    assert "What waits and runs: as of 2 h 30 min ago." in text
    assert "more than 10" in text
