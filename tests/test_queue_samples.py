"""What waits, counted or measured, and what came in since it was measured."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from psycopg import sql

from django_pgjobs.models import Job, QueueSample, Statistic
from django_pgjobs.queries import numbers, statistics
from django_pgjobs.queries.signs import list_signs
from tests.factories import make_job, make_jobs, make_running_job
from tests.test_statistics import HOUR, sums

pytestmark = pytest.mark.django_db


@pytest.fixture
def cursor() -> Iterator[Any]:
    with connection.cursor() as given:
        yield given


def measure(cursor: Any) -> None:
    """Measure what waits, a minute after it was measured."""
    QueueSample.objects.update(measured_at=F("measured_at") - timedelta(minutes=1))
    statistics.measure_queues(cursor)


class TestSizes:
    """What has not finished, counted or measured."""

    def make_all_kinds(self) -> None:
        later = sql.SQL("now() + interval '1 hour'")
        make_jobs(4, queue_name="mail", enqueued_at=sql.SQL("now() - interval '90 seconds'"))
        make_jobs(3, queue_name="mail", run_after=later)
        make_jobs(2, queue_name="mail", due_at=later, attempts=1)
        make_jobs(1, queue_name="mail", hold="dependencies")
        make_running_job(queue_name="fax")
        make_job(status="failed", queue_name="fax")

    def check(self, sizes: list[numbers.Size]) -> None:
        shown = {size.queue_name: size[1:6] for size in sizes}
        assert shown == {None: (4, 1, 3, 2, 1), "mail": (4, 0, 3, 2, 1), "fax": (0, 1, 0, 0, 0)}
        assert [size.queue_name for size in sizes] == [None, "mail", "fax"]
        assert not any(size.is_cut for size in sizes)

    def test_few_are_counted_at_once(self, cursor: Any) -> None:
        self.make_all_kinds()
        self.check(numbers.list_sizes(cursor))

    def test_many_are_those_of_the_newest_sample(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(numbers, "FEW", 5)
        make_jobs(6, queue_name="old")
        statistics.measure_queues(cursor)
        Job.objects.all().delete()
        self.make_all_kinds()
        QueueSample.objects.update(measured_at=datetime.now(UTC) - timedelta(minutes=1))
        statistics.measure_queues(cursor)
        make_jobs(9, queue_name="new")
        self.check(numbers.list_sizes(cursor))

    @pytest.mark.parametrize("sampled", [None, 0, 5])
    def test_of_many_without_a_sample_that_saw_them_the_oldest_are_counted(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch, sampled: int | None
    ) -> None:
        monkeypatch.setattr(numbers, "FEW", 5)
        if sampled is not None:
            make_jobs(sampled, queue_name="old")
            statistics.measure_queues(cursor)
        make_jobs(9, queue_name="new")
        everything, *_ = numbers.list_sizes(cursor)
        assert (everything.ready, everything.is_cut) == (6, True)

    def test_a_sample_of_the_future_is_none(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(numbers, "FEW", 5)
        make_jobs(9)
        for hours, ready in ((-1, 7), (1, 8)):
            moment = datetime.now(UTC) + timedelta(hours=hours)
            QueueSample.objects.create(measured_at=moment, ready=ready)
        assert [size.ready for size in numbers.list_sizes(cursor)] == [7]

    def test_the_largest_queues_are_told_of(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(numbers, "MAX_QUEUES", 2)
        for number in range(4):
            make_jobs(number + 1, queue_name=f"queue-{number}")
        found = [size.queue_name for size in numbers.list_sizes(cursor)]
        assert found == [None, "queue-3", "queue-2"]

    def test_it_says_that_there_are_more_than_it_looked_at(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(numbers, "FEW", 3)
        monkeypatch.setattr(statistics, "MAX_JOBS", 4)
        make_jobs(5)
        statistics.measure_queues(cursor)
        assert {size.is_cut for size in numbers.list_sizes(cursor)} == {True}

    def test_queues_without_number_have_one_sum(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(statistics, "MAX_QUEUES", 2)
        for number in range(5):
            make_jobs(number + 1, queue_name=f"queue-{number}")
        statistics.measure_queues(cursor)
        samples = QueueSample.objects.values_list("queue_name", "ready")
        assert sorted(samples, key=str) == [("queue-3", 4), ("queue-4", 5), (None, 15)]

    def test_samples_by_time(self, cursor: Any) -> None:
        for count in (1, 2):
            make_jobs(count, queue_name="mail")
            statistics.measure_queues(cursor)
            QueueSample.objects.filter(ready=count).update(
                measured_at=datetime.now(UTC) - timedelta(minutes=10 - count)
            )
        for seconds, sizes, apart in ((HOUR, [1, 3], 540), (60, [3], 0)):
            found = list_signs(
                cursor,
                recent=0,
                least=1,
                max_jobs=1,
                max_rows=1,
                queue_names=["mail"],
                waiting_names=[],
                sampled=seconds,
                max_live=0,
                max_lanes=1,
                long_seconds=HOUR,
                max_runs=1,
            )
            backlog = found.backlogs["mail"]
            assert (backlog.ready, backlog.is_cut) == (sizes, False)
            assert backlog.seconds == pytest.approx(apart, abs=5)

    def test_the_most_that_were_ready_by_steps(self, cursor: Any) -> None:
        for count in (3, 1):
            make_jobs(count, queue_name="mail")
            statistics.measure_queues(cursor)
        found = numbers.list_peaks(cursor, seconds=60, step_seconds=86400, queue_names=["mail"])
        assert [max(found["mail"].values()), set(found)] == [4, {"mail"}]


class TestWhatCameIn:
    """Jobs are counted by the minute of their enqueue, once each."""

    def test_between_two_samples(self, cursor: Any) -> None:
        measure(cursor)
        make_jobs(3, queue_name="mail")
        make_job(queue_name="mail", status="successful")
        measure(cursor)
        statistics.count_enqueued(cursor)
        assert sums() == {}
        make_jobs(2, queue_name="fax")
        for expected in (4, 6, 6):
            measure(cursor)
            statistics.count_enqueued(cursor)
            assert sums()["enqueued"] == expected

    def test_by_two_leaders_once(self, cursor: Any) -> None:
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        make_jobs(10)
        for _ in range(2):
            measure(cursor)
        for _ in range(2):
            measure(cursor)
            for _ in range(2):
                statistics.count_enqueued(cursor)
        assert sums() == {"enqueued": 10}

    def test_however_late(self, cursor: Any) -> None:
        """Counts that failed, or nobody there for days, whose samples are pruned."""
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        make_jobs(3)
        measure(cursor)
        QueueSample.objects.update(measured_at=datetime.now(UTC) - timedelta(days=40))
        make_jobs(4, enqueued_at=sql.SQL("now() - interval '20 days'"))
        for _ in range(3):
            measure(cursor)
            statistics.prune_statistics(cursor, retention=400 * 86400)
        statistics.count_enqueued(cursor)
        assert sums() == {"enqueued": 7}
        statistics.prune_statistics(cursor, retention=400 * 86400)
        assert QueueSample.objects.filter(queue_name=None).count() == 3

    def test_more_than_are_looked_at_are_counted_later(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(statistics, "MAX_JOBS", 10)
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        make_jobs(8)
        make_jobs(8, status="successful")
        make_jobs(9)
        for expected in (0, 10, 20, 25, 25):
            measure(cursor)
            statistics.count_enqueued(cursor)
            assert sums()["enqueued"] == expected

    def test_when_ids_begin_anew(self, cursor: Any) -> None:
        make_jobs(1)
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        QueueSample.objects.filter(counted_job_id__isnull=False).update(counted_job_id=10**15)
        measure(cursor)
        statistics.count_enqueued(cursor)
        make_jobs(3)
        for _ in range(2):
            measure(cursor)
        statistics.count_enqueued(cursor)
        assert sums() == {"enqueued": 3}

    def test_once_where_the_clock_was_set_back(self, cursor: Any) -> None:
        """It was an hour ahead for two minutes: their samples are of the future."""
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        before = list(QueueSample.objects.values_list("id", flat=True))
        make_jobs(7)
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        ahead = QueueSample.objects.exclude(id__in=before)
        ahead.update(measured_at=datetime.now(UTC) + timedelta(hours=1))
        for expected in (7, 10, 13):
            make_jobs(3)
            measure(cursor)
            statistics.count_enqueued(cursor)
            assert sums()["enqueued"] == expected
        # Set back by a little, the sample up to which was counted has not settled again.
        counted = QueueSample.objects.get(counted_job_id__isnull=False)
        QueueSample.objects.filter(id__gte=counted.pk).update(measured_at=Now())
        statistics.count_enqueued(cursor)
        measure(cursor)
        statistics.count_enqueued(cursor)
        assert sums()["enqueued"] == 16

    def test_by_a_leader_that_has_just_begun(self, cursor: Any) -> None:
        """It measures at once, and yet the transactions that are open have their minute to end."""
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        cursor.execute("SELECT nextval('pgjobs_job_id_seq')")
        [enqueued] = cursor.fetchone()
        measure(cursor)
        statistics.count_enqueued(cursor)
        for _ in range(2):
            statistics.measure_queues(cursor)
            statistics.count_enqueued(cursor)
        make_job(id=enqueued)
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        assert sums() == {"enqueued": 1}

    def test_from_the_first_sample_on(self, cursor: Any) -> None:
        """The second one follows at once."""
        statistics.measure_queues(cursor)
        statistics.count_enqueued(cursor)
        make_jobs(3)
        statistics.measure_queues(cursor)
        statistics.count_enqueued(cursor)
        measure(cursor)
        statistics.count_enqueued(cursor)
        assert sums() == {"enqueued": 3}

    def test_of_many_names_the_others_are_together(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(statistics, "MAX_CELLS", 2)
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        for minutes, count, queue_name in ((9, 1, "d"), (9, 3, "c"), (9, 1, "b"), (5, 1, "a")):
            enqueued_at = sql.SQL(f"now() - interval '{minutes} minutes'")
            make_jobs(count, queue_name=queue_name, enqueued_at=enqueued_at)
        make_job(queue_name="c", task_path="a.b", enqueued_at=sql.SQL("now() - interval '9 min'"))
        for _ in range(2):
            measure(cursor)
        statistics.count_enqueued(cursor)
        rows = Statistic.objects.filter(enqueued__gt=0).order_by("begins_at", "queue_name")
        found = [(row.queue_name, row.task_path, row.enqueued) for row in rows]
        add = "tests.tasks.add"
        assert found == [(*statistics.OTHERS, 2), ("b", add, 1), ("c", add, 3), ("a", add, 1)]

    def test_by_the_minute_of_the_enqueue(self, cursor: Any) -> None:
        for _ in range(2):
            measure(cursor)
            statistics.count_enqueued(cursor)
        make_job(enqueued_at=sql.SQL("now() - interval '10 minutes'"))
        make_job(enqueued_at=sql.SQL("'9999-12-01 00:00:00+00'"))
        make_job(enqueued_at=sql.SQL("'0001-02-01 00:00:00+00'"))
        for _ in range(2):
            measure(cursor)
        statistics.count_enqueued(cursor)
        ages = [
            datetime.now(UTC) - row.begins_at for row in Statistic.objects.order_by("begins_at")
        ]
        assert [round(each.total_seconds() / 600) for each in ages] == [144, 1, 0]
