"""Statistics against the rows: what ended, came in and waits, and how long it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs.flows import workflow
from django_pgjobs.models import Job, QueueSample, Statistic
from django_pgjobs.queries import expiry, jobs, numbers, statistics
from django_pgjobs.queries.signs import list_signs
from django_pgjobs.queries.statistics import DENSE_SECONDS, STEPS, Cell, Minute
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.factories import make_job, make_jobs, make_running_job, make_worker

pytestmark = pytest.mark.django_db

TASK = "tests.tasks.add"
HOUR = 3600


@pytest.fixture
def cursor() -> Iterator[Any]:
    with connection.cursor() as given:
        yield given


def cell(*ends: int, ran: float = 0.0) -> Cell:
    made = Cell(list(ends), ran=ran)
    made.runs[4] = made.waits[2] = sum(ends)
    return made


def minutes_ago(count: int) -> int:
    return int(datetime.now(UTC).timestamp() // 60) - count


def write(cursor: Any, ago: int, cells: dict[tuple[str, str], Cell]) -> None:
    statistics.write_statistics(cursor, [Minute(minutes_ago(ago), cells)])


def sums(**conditions: Any) -> Counter[str]:
    """Return the sum of each number of the statistics."""
    names = ("enqueued", "successful", "failed", "cancelled", "retried", "lost")
    found: Counter[str] = Counter()
    for row in Statistic.objects.filter(**conditions).values(*names):
        found.update(row)
    return +found


def age(period: str, seconds: float) -> None:
    Statistic.objects.update(
        period=period, begins_at=datetime.now(UTC) - timedelta(seconds=seconds)
    )


class TestWhoEndsJobsCountsThem:
    """Also where no worker runs them: in the statement that ends them."""

    def test_a_run(self) -> None:
        tasks.add.enqueue_many([(1, 2)] * 3)
        tasks.fail.enqueue()
        run_jobs()
        assert sums(task_path=TASK) == {"successful": 3}
        assert sums(task_path="tests.tasks.fail")["failed"] == 1

    def test_a_cancel(self) -> None:
        job = Job.objects.get(pk=make_job(queue_name="mail"))
        job.cancel()
        assert sums(queue_name="mail") == {"cancelled": 1}

    def test_a_cancel_of_what_runs_counts_nothing_yet(self) -> None:
        job = Job.objects.get(pk=make_running_job().id)
        job.cancel()
        assert sums() == {}

    def test_a_job_that_expires(self, cursor: Any) -> None:
        make_jobs(2, expires_at=sql.SQL("now() - interval '1 second'"))
        expiry.expire_jobs(cursor, max_jobs=9)
        assert sums() == {"cancelled": 2}

    def test_a_loss_and_the_last_one(self, cursor: Any) -> None:
        """S2.32."""
        gone = make_worker(lease_seconds=-1)
        make_running_job(gone, lost_count=0, queue_name="first")
        other = make_worker(lease_seconds=-1)
        make_running_job(other, lost_count=2, queue_name="last")
        jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3)
        assert sums(queue_name="first") == {"lost": 1}
        assert sums(queue_name="last") == {"lost": 1, "failed": 1}

    def test_what_is_cancelled_with_its_batch(self) -> None:
        with workflow("of three") as flow:
            flow.add_many(tasks.add, [(1, 2)] * 3)
        flow.cancel()
        run_jobs()
        assert sums() == {"cancelled": 3}


class TestRolling:
    """Rows become fewer, their sums stay."""

    @pytest.mark.parametrize("step", STEPS, ids=lambda step: step.into)
    def test_rows_that_are_old_enough_are_added_up(self, cursor: Any, step: Any) -> None:
        for _ in range(3):
            write(
                cursor,
                0,
                {("mail", TASK): cell(1, 2, 3, 4, ran=0.5), ("fax", TASK): cell(1, 0, 0, 0)},
            )
        age(step.period, step.keep + 2 * step.step)
        before = sums()
        assert statistics.roll_up(cursor, step) == 6
        row = Statistic.objects.get(queue_name="mail")
        assert (row.period, row.ran, row.successful) == (step.into, 1.5, 3)
        assert (row.runs, row.waits) == ([0, 0, 0, 0, 30], [0, 0, 30, 0, 0])
        assert row.begins_at.timestamp() % step.step == 0
        assert (sums(), Statistic.objects.count()) == (before, 2)

    @pytest.mark.parametrize("step", STEPS, ids=lambda step: step.into)
    def test_younger_ones_stay(self, cursor: Any, step: Any) -> None:
        write(cursor, 0, {("mail", TASK): cell(1, 0, 0, 0)})
        age(step.period, step.keep - 1)
        assert statistics.roll_up(cursor, step) == 0

    def test_odd_lists_do_no_harm(self, cursor: Any) -> None:
        for waits in ("{}", "{NULL,3}", "{{1,2},{3,4}}", "{-5}", "{9223372036854775807}"):
            cursor.execute(
                "INSERT INTO pgjobs_statistic (begins_at, queue_name, task_path, waits)"
                " VALUES (now() - interval '1 hour', 'mail', 'x', %s)",
                [waits],
            )
        assert statistics.roll_up(cursor, STEPS[0]) == 5
        assert Statistic.objects.get().waits == [10**12, 5, 3, 4]

    def test_what_is_older_than_it_is_kept_goes(self, cursor: Any) -> None:
        for days in (1, 3):
            write(cursor, days * 1440, {("mail", TASK): cell(days, 0, 0, 0)})
        assert statistics.prune_statistics(cursor, retention=2 * 86400) == 1
        assert sums() == {"successful": 1}

    def test_of_old_samples_one_an_hour_stays(self, cursor: Any) -> None:
        hour = datetime.now(UTC).replace(minute=0) - timedelta(seconds=DENSE_SECONDS + 7200)
        kept = [hour, hour + timedelta(minutes=60), datetime.now(UTC)]
        gone = [
            hour + timedelta(minutes=1),
            hour + timedelta(minutes=59),
            hour - timedelta(days=40),
        ]
        for moment in kept + gone:
            QueueSample.objects.create(measured_at=moment)
        assert statistics.prune_statistics(cursor, retention=400 * 86400) == 3
        times = QueueSample.objects.order_by("measured_at").values_list("measured_at", flat=True)
        assert list(times) == kept


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
        waits = sizes[0].measured_at - sizes[0].waiting_since  # type: ignore[operator]
        assert waits == pytest.approx(timedelta(seconds=90), abs=timedelta(seconds=30))

    def test_few_are_counted_at_once(self, cursor: Any) -> None:
        self.make_all_kinds()
        self.check(numbers.list_sizes(cursor))

    def test_many_are_those_of_the_newest_sample(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(numbers, "FEW", 5)
        make_jobs(6, queue_name="old")
        assert numbers.list_sizes(cursor) == []
        statistics.measure_queues(cursor)
        Job.objects.all().delete()
        self.make_all_kinds()
        QueueSample.objects.update(measured_at=datetime.now(UTC) - timedelta(minutes=1))
        statistics.measure_queues(cursor)
        make_jobs(9, queue_name="new")
        self.check(numbers.list_sizes(cursor))

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
        for seconds, sizes in ((HOUR, [1, 3]), (60, [3])):
            found = list_signs(
                cursor,
                recent=0,
                least=1,
                max_jobs=1,
                max_rows=1,
                queue_names=["mail"],
                sampled=seconds,
            )
            assert [each.ready for each in found.backlogs["mail"]] == sizes

    def test_the_most_that_were_ready_by_steps(self, cursor: Any) -> None:
        for count in (3, 1):
            make_jobs(count, queue_name="mail")
            statistics.measure_queues(cursor)
        found = numbers.list_peaks(cursor, seconds=60, step_seconds=86400, queue_names=["mail"])
        assert [max(found["mail"].values()), set(found)] == [4, {"mail"}]


class TestWhatCameIn:
    """Jobs are counted by the minute of their enqueue, once each."""

    def test_between_two_samples(self, cursor: Any) -> None:
        statistics.measure_queues(cursor)
        make_jobs(3, queue_name="mail")
        make_job(queue_name="mail", status="successful")
        statistics.measure_queues(cursor)
        statistics.count_enqueued(cursor)
        assert sums() == {}
        make_jobs(2, queue_name="fax")
        for expected in (4, 6, 6):
            statistics.measure_queues(cursor)
            statistics.count_enqueued(cursor)
            assert sums()["enqueued"] == expected

    def test_by_the_minute_of_the_enqueue(self, cursor: Any) -> None:
        statistics.measure_queues(cursor)
        make_job(enqueued_at=sql.SQL("now() - interval '10 minutes'"))
        make_job(enqueued_at=sql.SQL("'9999-12-01 00:00:00+00'"))
        make_job(enqueued_at=sql.SQL("'0001-02-01 00:00:00+00'"))
        for _ in range(2):
            statistics.measure_queues(cursor)
        statistics.count_enqueued(cursor)
        ages = [
            datetime.now(UTC) - row.begins_at for row in Statistic.objects.order_by("begins_at")
        ]
        assert [round(each.total_seconds() / 600) for each in ages] == [144, 1, 0]


class TestNumbers:
    """What ended, by time: statistics for minutes that are over, then the rows themselves."""

    def test_both_sources_meet_without_a_gap(self, cursor: Any) -> None:
        for minutes in range(1, 60):
            write(cursor, minutes, {("mail", TASK): cell(1, 0, 0, 0)})
        moment = sql.SQL("date_trunc('minute', now() - interval '15 seconds')")
        make_jobs(2, status="failed", queue_name="mail", finished_at=moment)
        make_jobs(3, status="successful", finished_at=sql.SQL("statement_timestamp()"))
        found = numbers.list_statistics(cursor, seconds=2 * HOUR, bucket_seconds=60)
        closed = found[-1].upto.timestamp() - 15
        counted = 59 if closed % 60 < 45 else 58
        assert sum(each.failed for each in found) == 2
        assert sum(each.successful for each in found) in (counted + 3, counted + 2, 62, 61)

    def test_what_many_have_just_finished_waits_for_its_statistics(
        self, cursor: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(numbers, "FEW", 2)
        make_jobs(3, status="successful", finished_at=sql.SQL("statement_timestamp()"))
        found = numbers.list_statistics(cursor, seconds=HOUR, bucket_seconds=60)
        assert sum(each.successful for each in found) == 0
        assert found[-1].upto.second == 0

    def test_by_queue_and_by_task(self, cursor: Any) -> None:
        cells = {("mail", "a"): cell(1, 0, 0, 0, ran=2.0), ("fax", "a"): cell(0, 2, 0, 1, ran=1.0)}
        write(cursor, 5, cells)

        def shown(**options: Any) -> list[tuple[Any, ...]]:
            found = numbers.list_statistics(cursor, seconds=HOUR, bucket_seconds=86400, **options)
            return sorted((n[1:3] + n[4:6] + n[7:8]) for n in found if any(n[3:9]))

        of_mail, of_fax = ("mail", None, 1, 0, 0), ("fax", None, 0, 2, 1)
        assert shown(by_queue=True) == [of_fax, of_mail]
        assert shown(by_task=True) == [(None, "a", 1, 2, 1)]
        assert shown(by_task=True, queue_name="fax") == [(None, "a", 0, 2, 1)]
        assert shown(task_path="b") == []


class TestTimes:
    """How long it took, by classes of time."""

    def test_of_queues_and_of_tasks(self, cursor: Any) -> None:
        write(cursor, 5, {("mail", "a"): cell(3, 0, 0, 0), ("fax", "a"): cell(1, 0, 0, 0)})
        write(cursor, 500, {("mail", "a"): cell(9, 0, 0, 0)})
        found = numbers.times_of(cursor, seconds=HOUR)
        assert {name: (t.waits[2], t.runs[4]) for name, t in found.items()} == {
            "mail": (3, 3),
            "fax": (1, 1),
        }
        assert numbers.times_of(cursor, seconds=HOUR, by_task=True)["a"].runs[4] == 4
        assert set(numbers.times_of(cursor, seconds=HOUR, queue_names=["fax"])) == {"fax"}
        assert numbers.times_of(cursor, seconds=HOUR, task_paths=["b"]) == {}

    def test_where_only_one_of_both_took_so_long_the_other_has_none(self, cursor: Any) -> None:
        write(cursor, 5, {("mail", "a"): cell(3, 0, 0, 0)})
        [times] = numbers.times_of(cursor, seconds=HOUR).values()
        assert (sum(times.waits), sum(times.runs)) == (3, 3)

    @pytest.mark.parametrize(
        ("counts", "part", "expected"),
        [
            ([], 0.5, None),
            ([0, 0], 0.5, None),
            ([4], 0.5, 0.0005),
            ([0, 0, 4], 0.5, 0.003),
            ([0, 0, 4], 1.0, 0.004),
            ([2, 0, 2], 0.5, 0.001),
            ([1] * 28, 1.0, 134217.728),
        ],
    )
    def test_a_quantile(self, counts: list[int], part: float, expected: float | None) -> None:
        assert numbers.quantile(counts, part) == (expected and pytest.approx(expected))
