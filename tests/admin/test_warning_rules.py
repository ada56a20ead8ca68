"""Warnings about load and failures: when they are given, what nearly is enough, where they lead."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from django_pgjobs.models import Pause, QueueSample, Statistic
from django_pgjobs.queries.signs import Backlog, Crew, Ended, FailingTask
from django_pgjobs.warnings import situation
from django_pgjobs.warnings.rules import WaitingQueue, busy_queues, growth_of, is_rising
from tests.admin.warning_support import linked_ids, no_dead_rows, notices, texts
from tests.factories import ago, make_job, make_jobs, make_running_job, make_worker

__all__ = ["no_dead_rows"]

pytestmark = pytest.mark.django_db


NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class TestBusyQueues:
    """All slots are taken while jobs wait."""

    def crew(self, running: int, **changes: Any) -> Crew:
        return Crew(["default"], ["mail"], [], 4, running)._replace(**changes)

    def row(self, seconds: float, ready: int = 9) -> WaitingQueue:
        return WaitingQueue("mail", ready, NOW - timedelta(seconds=seconds))

    def test_a_queue_that_waits_for_slots(self) -> None:
        [found] = busy_queues([self.row(61)], [self.crew(4), self.crew(5)], NOW)
        assert (found.queue_name, found.ready, found.slots) == ("mail", 9, 8)

    @pytest.mark.parametrize(
        ("seconds", "crews", "is_paused"),
        [
            (59, [{"running": 4}], False),
            (61, [{"running": 3}], False),
            (61, [{"running": 4}, {"running": 0}], False),
            (61, [{"running": 4}], True),
            (61, [{"running": 4, "queues": ["fax"]}], False),
            (61, [{"running": 4, "excluded_queues": ["mail"]}], False),
            (61, [{"running": 4, "queues": None, "excluded_queues": ["mail"]}], False),
        ],
    )
    def test_near_misses(self, seconds: float, crews: list[Any], is_paused: bool) -> None:
        made = [self.crew(**crew) for crew in crews]
        assert busy_queues([self.row(seconds)._replace(is_paused=is_paused)], made, NOW) == []

    def test_the_page_says_it_instead_of_a_long_wait(self, admin_client: Client) -> None:
        worker = make_worker(slots=2)
        make_running_job(worker)
        ids = make_jobs(3, enqueued_at=ago(601))
        assert texts() == [
            f"Job {ids[0]}, the oldest of queue default that may run, has waited for 10 min."
        ]
        make_running_job(worker)
        [notice] = notices()
        assert notice.text == (
            "All 2 slots of the workers of queue default are busy, and 3 jobs wait, the oldest for "
            "10 min."
        )
        assert linked_ids(admin_client, notice) == set(ids)

    def test_async_jobs_take_no_slot_and_quiet_workers_have_none(self) -> None:
        worker = make_worker(slots=1)
        make_running_job(worker, is_async=True)
        make_job(enqueued_at=ago(200))
        assert texts() == []
        make_worker("q:1", slots=5, quiet_requested_at=ago(5))
        make_running_job(worker)
        assert [notice.kind for notice in notices()] == ["busy"]


class TestFailures:
    """The share of the last minutes against the day before."""

    @pytest.mark.parametrize(
        ("numbers", "rises"),
        [
            ((10, 10, 1, 99), True),
            ((9, 10, 1, 99), False),
            ((10, 90, 5, 95), True),
            ((10, 91, 4, 96), False),
            ((10, 90, 6, 94), False),
            ((10, 10, 0, 0), True),
            ((10, 11, 0, 19), False),
            ((10, 11, 0, 20), True),
            ((50, 0, 60, 40), False),
        ],
    )
    def test_a_rise(self, numbers: tuple[int, int, int, int], rises: bool) -> None:
        failed, successful, failed_before, successful_before = numbers
        before = Ended(successful_before, failed_before)
        assert is_rising(FailingTask("t", NOW, failed, successful), before) is rises

    def test_it_leads_to_the_jobs_that_failed(self, admin_client: Client) -> None:
        make_worker()
        before = {"begins_at": timezone.now() - timedelta(hours=5), "failed": 1, "successful": 199}
        row = {"queue_name": "default", "task_path": "tests.tasks.fail"}
        Statistic.objects.create(**row, **before)
        Statistic.objects.create(
            **row, begins_at=timezone.now() - timedelta(minutes=5), successful=36
        )
        ids = make_jobs(12, "tests.tasks.fail", status="failed", finished_at=ago(300))
        make_jobs(20, "tests.tasks.fail", status="failed", finished_at=ago(1_000))
        make_jobs(9, "tests.tasks.other", status="failed", finished_at=ago(300))
        [notice] = notices()
        assert notice.text == (
            "12 jobs of tests.tasks.fail failed in the last 15 min: 25 % of those that ended, 0 % "
            "the day before."
        )
        assert linked_ids(admin_client, notice) == set(ids)

    @pytest.mark.parametrize("few", [10_000, 100])
    def test_both_are_counted_up_to_the_same_moment(
        self, monkeypatch: pytest.MonkeyPatch, few: int
    ) -> None:
        """What ends now is in no statistics yet: one job of a hundred fails, as ever."""
        monkeypatch.setattr(situation, "MAX_FAILED_JOBS", few)
        make_worker()
        row = {"queue_name": "default", "task_path": "tests.tasks.fail"}
        before = timezone.now() - timedelta(hours=5)
        Statistic.objects.create(**row, begins_at=before, failed=100, successful=9_900)
        make_jobs(990, "tests.tasks.fail", status="successful", finished_at=ago(5))
        make_jobs(10, "tests.tasks.fail", status="failed", finished_at=ago(5))
        assert texts() == []


class TestGrowth:
    """A backlog over the last half hour."""

    def backlog(self, sizes: Sequence[int], minutes: float = 30, is_cut: bool = False) -> Backlog:
        return Backlog(list(sizes), 60 * minutes, is_cut)

    def test_a_backlog_that_grows(self) -> None:
        found = growth_of("mail", self.backlog(range(100, 400, 10)), 410)
        assert found is not None
        assert (found.before, found.now, round(found.seconds)) == (100, 410, 1_800)

    @pytest.mark.parametrize(
        ("sizes", "changes", "now"),
        [
            (range(99), {}, 99),
            (range(1_000, 1_300, 10), {}, 1_400),
            (range(100, 400, 10), {"minutes": 19}, 410),
            (range(100, 400, 10), {"is_cut": True}, 410),
            (range(100, 400, 10), {}, 20),
            ([100, 200, 900, 900, 800, 500], {}, 500),
            ([*range(100, 1_900, 60), 1_500], {}, 918),
            ([*range(100, 1_900, 60), 1_500, 1_400], {}, 1_400),
            ([300] * 9, {}, 300),
            ([1, 500], {}, 500),
        ],
        ids=[
            "few",
            "slowly",
            "short",
            "cut",
            "gone by now",
            "wave",
            "falls now",
            "has fallen",
            "steady",
            "two",
        ],
    )
    def test_near_misses(self, sizes: Sequence[int], changes: dict[str, Any], now: int) -> None:
        assert growth_of("mail", self.backlog(sizes, **changes), now) is None

    def test_the_page_says_it(self, admin_client: Client) -> None:
        make_worker()
        ids = make_jobs(150)
        for minutes in range(30):
            QueueSample.objects.create(
                measured_at=timezone.now() - timedelta(minutes=29.5 - minutes),
                queue_name="default",
                ready=5 * minutes,
            )
        [notice] = notices()
        assert notice.text == "Queue default grows: 0 jobs were ready 29 min ago, 150 are now."
        listed = linked_ids(admin_client, notice)
        assert listed <= set(ids)
        Pause.objects.create(kind="queue", name="default")
        assert [notice.kind for notice in notices()] == ["paused"]


@pytest.mark.slow
def test_what_was_usual_takes_too_long_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(situation, "list_past", sleep)
    worker = make_worker()
    make_running_job(worker, last_attempted_at=ago(500))
    make_jobs(40, status="failed", finished_at=ago(300))
    make_jobs(2, enqueued_at=ago(601))
    assert [notice.kind for notice in notices()] == ["busy"]


def sleep(cursor: Any, **bounds: Any) -> None:
    """Take longer than it may."""
    cursor.execute("SELECT pg_sleep(30)")
