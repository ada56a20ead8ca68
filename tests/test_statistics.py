"""Statistics against the rows: what ended, came in and waits, and how long it took."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection
from psycopg import sql

from django_pgjobs.admin.overview.chart import RANGES
from django_pgjobs.flows import workflow
from django_pgjobs.models import Job, QueueSample, Statistic
from django_pgjobs.queries import expiry, jobs, numbers, statistics
from django_pgjobs.queries.signs import list_past
from django_pgjobs.queries.statistics import DENSE_SECONDS, STEPS, Cell, Minute
from django_pgjobs.testing import run_jobs
from django_pgjobs.worker.running.tally import Tally
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
        tally = Tally()
        tally.note_rescued(jobs.rescue_jobs(cursor, max_jobs=9, default_max_losses=3))
        assert sums() == {}
        statistics.write_statistics(cursor, tally.take(is_last=True))
        assert sums(queue_name="first") == {"lost": 1}
        assert sums(queue_name="last") == {"lost": 1, "failed": 1}

    def test_what_waited_for_a_failed_job(self) -> None:
        failed = tasks.fail_once.enqueue()
        tasks.add.using(after=[failed], queue_name="mail").enqueue(1, 2)
        run_jobs()
        assert sums(queue_name="mail") == {"cancelled": 1}

    def test_what_is_cancelled_with_its_batch(self) -> None:
        with workflow("of three") as flow:
            flow.add_many(tasks.add, [(1, 2)] * 3)
        flow.cancel()
        run_jobs()
        assert sums() == {"cancelled": 3}


def test_times_without_end_keep_nothing_from_being_written(cursor: Any) -> None:
    """Twenty thousand jobs that somebody's INSERT made wait since the year 1, in one minute."""
    odd = cell(20_000, 0, 0, 0, ran=20_000 * 6.3e10)
    odd.waited = odd.ran
    write(cursor, 5, {("mail", "odd"): odd, ("mail", TASK): cell(1, 0, 0, 0)})
    row = Statistic.objects.get(task_path="odd")
    assert (row.successful, row.waited, row.ran) == (20_000, 1e15, 1e15)
    assert sums(task_path=TASK) == {"successful": 1}


def admit_odd_lists(cursor: Any) -> None:
    """Let them into the table, until the test's rollback."""
    for column in ("waits", "runs"):
        bound = f"pgjobs_statistic_{column}_check"
        cursor.execute(f"ALTER TABLE pgjobs_statistic DROP CONSTRAINT {bound}")


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
        Statistic.objects.filter(queue_name="mail").update(enqueued=5, lost=6, waited=0.25)
        before = sums()
        assert statistics.roll_up(cursor, step) == 6
        row = Statistic.objects.get(queue_name="mail")
        assert (row.period, row.ran, row.waited) == (step.into, 1.5, 0.75)
        counts = (row.enqueued, row.successful, row.failed, row.cancelled, row.retried, row.lost)
        assert counts == (15, 3, 6, 9, 12, 18)
        assert (row.runs, row.waits) == ([0, 0, 0, 0, 30], [0, 0, 30, 0, 0])
        assert row.begins_at.timestamp() % step.step == 0
        assert (sums(), Statistic.objects.count()) == (before, 2)
        found = numbers.list_statistics(cursor, seconds=40 * 86400, bucket_seconds=86400)
        assert sum(each.retried for each in found) == before["retried"]

    @pytest.mark.parametrize("step", STEPS, ids=lambda step: step.into)
    def test_younger_ones_stay(self, cursor: Any, step: Any) -> None:
        write(cursor, 0, {("mail", TASK): cell(1, 0, 0, 0)})
        age(step.period, step.keep - 1)
        assert statistics.roll_up(cursor, step) == 0

    @pytest.mark.parametrize("step", STEPS, ids=lambda step: step.into)
    def test_the_first_that_is_not_old_enough_stays(self, cursor: Any, step: Any) -> None:
        def first() -> float:
            return (datetime.now(UTC).timestamp() - step.keep) // step.step * step.step

        before, after, count = first(), 0.0, 0
        while before != after:
            before = first()
            Statistic.objects.all().delete()
            write(cursor, 0, {("mail", TASK): cell(1, 0, 0, 0)})
            begins_at = datetime.fromtimestamp(before, UTC)
            Statistic.objects.update(period=step.period, begins_at=begins_at)
            count = statistics.roll_up(cursor, step)
            after = first()
        assert count == 0

    def test_no_chart_is_of_longer_periods_than_its_bars(self) -> None:
        assert STEPS[0].keep >= numbers.CLOSING_SECONDS
        for chosen in RANGES.values():
            for step in STEPS:
                if step.step > chosen.bucket_seconds:
                    assert step.keep >= chosen.bucket_seconds * chosen.buckets

    def test_odd_lists_do_no_harm(self, cursor: Any) -> None:
        admit_odd_lists(cursor)
        many = "{0" + ",-9223372036854775808" * 4 + "}"
        for waits in ("{}", "{NULL,3}", "{{1,2},{3,4}}", "{-5}", "{9223372036854775807}", many):
            cursor.execute(
                "INSERT INTO pgjobs_statistic (begins_at, queue_name, task_path, waits)"
                " VALUES (now() - interval '1 hour', 'mail', 'x', %s)",
                [waits],
            )
        found = numbers.times_of(cursor, seconds=7200)["mail"]
        assert found.waits[:5] == [10**15, 0, 0, 0, 0]
        assert statistics.roll_up(cursor, STEPS[0]) == 6
        assert Statistic.objects.get().waits == [10**12, 0, 0, 0, 0]

    @pytest.mark.parametrize("value", ["{-1}", "{1,1000000000001}", f"{{{','.join('1' * 101)}}}"])
    @pytest.mark.parametrize("column", ["waits", "runs"])
    def test_lists_are_counts(self, cursor: Any, column: str, value: str) -> None:
        with pytest.raises(IntegrityError, match=f"pgjobs_statistic_{column}_check"):
            cursor.execute(
                f"INSERT INTO pgjobs_statistic (begins_at, queue_name, task_path, {column})"
                " VALUES (now(), 'mail', 'x', %s)",
                [value],
            )

    @pytest.mark.parametrize("column", ["ready", "running", "scheduled", "retrying", "blocked"])
    @pytest.mark.parametrize("value", [-1, 10**12 + 1])
    def test_samples_are_counts(self, column: str, value: int) -> None:
        with pytest.raises(IntegrityError, match=f"pgjobs_queue_sample_{column}_check"):
            QueueSample.objects.create(**{column: value})

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

    def test_an_hour_without_a_sample_of_its_first_minute_keeps_another(self, cursor: Any) -> None:
        """Measuring takes its time, so that there is one every two minutes."""
        hour = datetime.now(UTC).replace(minute=0) - timedelta(days=3)
        for minutes in range(1, 240, 2):
            moment = hour + timedelta(minutes=minutes)
            for queue_name in (None, "mail"):
                QueueSample.objects.create(measured_at=moment, queue_name=queue_name)
        statistics.prune_statistics(cursor, retention=400 * 86400)
        kept = QueueSample.objects.filter(queue_name="mail").order_by("measured_at")
        times = [hour + timedelta(minutes=60 * number + 1) for number in range(4)]
        assert [sample.measured_at for sample in kept] == times
        assert QueueSample.objects.count() == 8
        assert statistics.prune_statistics(cursor, retention=400 * 86400) == 0

    @pytest.mark.parametrize(
        ("retention", "days", "stays"),
        [(None, 31, True), (None, 33, False), (2 * 86400, 3, False), (400 * 86400, 3, True)],
    )
    def test_samples_go_whatever_is_kept(
        self, cursor: Any, retention: float | None, days: int, stays: bool
    ) -> None:
        write(cursor, 500 * 1440, {("mail", TASK): cell(1, 0, 0, 0)})
        QueueSample.objects.create(measured_at=datetime.now(UTC) - timedelta(days=days))
        statistics.prune_statistics(cursor, retention=retention)
        assert QueueSample.objects.exists() is stays
        assert Statistic.objects.exists() is (retention is None)


class TestNumbers:
    """What ended, by time: statistics for minutes that are over, then the rows themselves."""

    def test_both_sources_meet_without_a_gap(self, cursor: Any) -> None:
        def minutes_now() -> tuple[int, int]:
            # The one that is closed last, and that of now: rows are written by their age.
            now = time.time()
            return int((now - numbers.CLOSING_SECONDS) // 60), int(now // 60)

        before, after = minutes_now(), (0, 0)
        while before != after:
            before = minutes_now()
            closed, _ = before
            Statistic.objects.all().delete()
            Job.objects.all().delete()
            # Also of minutes that are not closed: their jobs are counted themselves.
            for minutes in range(60):
                write(cursor, minutes, {("mail", TASK): cell(1, 0, 0, 0)})
            moments = [closed * 60 - 1, closed * 60, closed * 60 + 1, time.time()]
            for moment in moments:
                finished_at = datetime.fromtimestamp(moment, UTC)
                make_jobs(2, status="failed", queue_name="mail", finished_at=finished_at)
            found = numbers.list_statistics(cursor, seconds=2 * HOUR, bucket_seconds=60)
            after = minutes_now()
        assert sum(each.failed for each in found) == 6
        written = {each.bucket for each in found if each.successful}
        assert max(written) == closed - 1
        assert sum(each.successful for each in found) == len(written) >= 58

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

    def test_by_time_and_over_all_of_it_by_queue(self, cursor: Any) -> None:
        write(cursor, 5, {("mail", "a"): cell(1, 2, 0, 9), ("fax", "a"): cell(1, 0, 0, 0)})
        write(cursor, 50, {("mail", "b"): cell(0, 1, 3, 0)})
        write(cursor, 80, {("mail", "b"): cell(9, 9, 9, 9)})
        make_job(status="failed", queue_name="z", finished_at=sql.SQL("statement_timestamp()"))
        sums = numbers.sum_statistics(cursor, seconds=HOUR - 60, bucket_seconds=60)
        listed = numbers.list_statistics(cursor, seconds=HOUR - 60, bucket_seconds=60)
        # A minute may have begun between the two.
        assert [each[1:-1] for each in sums.by_time] == [each[1:-1] for each in listed]
        assert sums.by_queue == {"mail": (1, 3, 3), "fax": (1, 0, 0), "z": (0, 1, 0)}
        assert sums.by_time[-1].bucket == sums.by_time[-1].upto.timestamp() // 60

    def test_the_sums_of_nothing_are_of_now(self, cursor: Any) -> None:
        sums = numbers.sum_statistics(cursor, seconds=HOUR, bucket_seconds=60)
        assert ([each[3:9] for each in sums.by_time], sums.by_queue) == ([(0,) * 6], {})

    def test_of_many_names_the_others_are_together(self, cursor: Any) -> None:
        write(cursor, 5, {(name, TASK): cell(n, 1, 1, 9) for n, name in enumerate("dcba")})
        write(cursor, 65, {(statistics.OTHERS[0], TASK): cell(100, 0, 0, 0)})
        make_jobs(2, status="failed", queue_name="z", finished_at=sql.SQL("statement_timestamp()"))
        found = numbers.list_largest(
            cursor, seconds=2 * HOUR, bucket_seconds=86_400, by_task=False, max_names=2
        )
        counts = {name: sum(by_bucket.values()) for name, by_bucket in found.counts.items()}
        # Of a: 3 + 1 + 1. Nobody is among the largest by retries, and "(others)" by none at all.
        assert counts == {"a": 5, "b": 4, None: 3 + 2 + 2 + 100}
        assert found.bucket == found.upto.timestamp() // 86_400

    def test_the_largest_of_nothing(self, cursor: Any) -> None:
        found = numbers.list_largest(
            cursor, seconds=HOUR, bucket_seconds=60, by_task=True, max_names=2
        )
        assert found.counts == {}


class TestBefore:
    """What ended a day before, which failures of now are set beside."""

    def test_it_ends_where_now_begins(self, cursor: Any) -> None:
        for minutes, failed in ((5, 1), (30, 2), (59, 4), (70, 8)):
            write(cursor, minutes, {("mail", TASK): cell(3, failed, 0, 0)})
        past = list_past(cursor, seconds=2 * HOUR, earliest=HOUR, latest=900)
        assert past.ended == {TASK: (6, 6)}
        times = numbers.times_of(cursor, seconds=2 * HOUR, by_task=True)
        assert past.runs == {TASK: times[TASK].runs}
        assert list_past(cursor, seconds=2 * HOUR, earliest=240, latest=60).ended == {}


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
            ([4], 0.5, (0.0, 0.001)),
            # Of runs of three milliseconds it is not true that half took less than that.
            ([0, 0, 4], 0.5, (0.002, 0.004)),
            ([0, 0, 4], 1.0, (0.002, 0.004)),
            ([2, 0, 2], 0.5, (0.0, 0.001)),
            ([2, 0, 2], 0.51, (0.002, 0.004)),
            ([1] * 28, 1.0, (67_108.864, 134_217.728)),
        ],
    )
    def test_a_quantile(self, counts: list[int], part: float, expected: Any) -> None:
        assert numbers.quantile(counts, part) == expected
