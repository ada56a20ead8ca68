"""Turns of a scheduler: which occurrences become jobs, and what their rows say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from django_pgjobs.models import Job, Occurrence, Schedule
from django_pgjobs.queries import schedules as queries
from django_pgjobs.schedules.control import skip_next
from django_pgjobs.schedules.firing import fire_due
from django_pgjobs.testing import run_jobs
from tests.models import Effect
from tests.schedules import tasks
from tests.schedules.support import (
    HOUR,
    MINUTE,
    NOTE_TIME,
    fire,
    jobs_of,
    let_be_due,
    make_schedule,
    outcomes,
)

pytestmark = pytest.mark.django_db


def test_a_new_schedule_is_planned_and_not_run() -> None:
    row = make_schedule()
    now = timezone.now()
    assert row.next_at is not None
    assert now < row.next_at <= now + HOUR
    assert row.next_at.timestamp() % 3600 == 0
    assert not Job.objects.exists()


def test_what_is_due_becomes_a_job_that_knows_its_time() -> None:
    """S1.18."""
    row = make_schedule(args=["x"])
    instant = let_be_due(row)
    turn = fire(row)
    [job] = jobs_of()
    assert (job.task_path, job.args, job.scheduled_for) == (NOTE_TIME, ["x"], instant)
    assert [each.job_id for each in turn.occurrences] == [job.pk]
    occurrence = Occurrence.objects.get()
    assert (occurrence.outcome, occurrence.job_id) == ("enqueued", job.pk)
    assert (row.last_at, row.last_job_id, row.runs) == (instant, job.pk, 1)
    assert row.next_at == instant + HOUR


def test_current_job_tells_schedule_and_time_in_each_attempt() -> None:
    row = make_schedule()
    instant = let_be_due(row)
    retried = make_schedule("retried", "tests.schedules.tasks.retry_once")
    later = let_be_due(retried)
    fire_due()
    tasks.note_time.enqueue()
    run_jobs()
    assert set(Effect.objects.values_list("key", flat=True)) == {
        f"each hour {instant.isoformat()}",
        "None none",
    }
    [job] = jobs_of("retried")
    assert job.attempts == 2
    assert job.result == str(later)


def test_an_occurrence_is_enqueued_once_whatever_is_written_of_the_schedule() -> None:
    row = make_schedule()
    instant = let_be_due(row)
    fire(row)
    Schedule.objects.update(next_at=instant)
    fire(row)
    assert len(jobs_of()) == 1
    assert row.next_at == instant + HOUR


def test_a_follower_takes_only_what_is_late() -> None:
    row = make_schedule(every=1.0)
    Schedule.objects.update(next_at=timezone.now())
    assert fire_due(late=60).taken == 0
    assert fire_due(late=0).taken == 1
    assert fire_due(excluded=[row.name]).taken == 0


@pytest.mark.parametrize(
    ("missed", "grace", "expected"),
    [
        ("skip", 86400, ["missed", "enqueued"]),
        ("latest", 86400, ["missed", "enqueued"]),
        ("all", 86400, ["enqueued"] * 5),
        ("all", 2.5 * 3600, ["missed", "enqueued", "enqueued", "enqueued"]),
    ],
)
def test_missed_occurrences_before_one_that_is_on_time(
    missed: str, grace: float, expected: list[str]
) -> None:
    row = make_schedule(missed=missed, grace=grace, cron="0 * * * *", timezone="UTC")
    now = timezone.now()
    # The hour is made to be now: occurrences at this minute of each hour.
    Schedule.objects.update(cron=f"{now.minute} * * * *")
    fire(row)
    Schedule.objects.update(next_at=now.replace(second=0, microsecond=0) - 4 * HOUR)
    fire(row)
    assert outcomes() == expected
    assert row.next_at is not None
    assert row.next_at > timezone.now()


@pytest.mark.parametrize(
    ("missed", "grace", "expected"),
    [
        ("skip", 86400, ["missed"]),
        ("latest", 86400, ["missed", "enqueued"]),
        ("latest", 60, ["missed"]),
        ("all", 86400, ["enqueued"] * 4),
    ],
)
def test_missed_occurrences_when_none_is_on_time(
    missed: str, grace: float, expected: list[str]
) -> None:
    minute = (timezone.now() + 10 * MINUTE).minute
    row = make_schedule(missed=missed, grace=grace, cron=f"{minute} * * * *")
    assert row.next_at is not None
    first = row.next_at - 4 * HOUR
    Schedule.objects.update(next_at=first)
    before = row.next_at
    fire(row)
    assert outcomes() == expected
    assert row.next_at == before
    if expected == ["missed", "enqueued"]:
        assert jobs_of()[0].scheduled_for == before - HOUR


def test_a_year_of_missed_seconds_is_one_line() -> None:
    row = make_schedule(every=1.0, missed="skip")
    Schedule.objects.update(next_at=timezone.now() - timedelta(days=365))
    fire(row)
    counts = [outcomes().count(each) for each in ("missed", "enqueued")]
    assert counts[0] == 1
    assert 55 <= counts[1] <= 62
    assert "nor until" in Occurrence.objects.get(outcome="missed").note


def test_all_that_was_missed_is_made_up_for_in_pages() -> None:
    row = make_schedule(every=60.0, missed="all")
    Schedule.objects.update(next_at=timezone.now() - timedelta(minutes=150))
    fire(row)
    assert len(jobs_of()) == 100
    assert row.next_at is not None
    assert row.next_at < timezone.now()
    fire(row)
    assert 150 <= len(jobs_of()) <= 152
    instants = [job.scheduled_for for job in jobs_of()]
    assert instants == sorted(set(instants))


def test_an_overlap_is_skipped_until_the_job_has_finished() -> None:
    row = make_schedule(overlap="skip", missed="all")
    let_be_due(row, HOUR)
    fire(row)
    assert outcomes() == ["enqueued", "skipped"]
    skipped = Occurrence.objects.filter(outcome="skipped")
    assert skipped.get().note == f"Job {jobs_of()[0].pk} has not finished."
    skipped.delete()
    let_be_due(row)
    fire(row)
    assert outcomes() == ["enqueued", "skipped"]
    run_jobs()
    skipped.delete()
    let_be_due(row)
    fire(row)
    assert outcomes() == ["enqueued", "enqueued"]


def test_an_overlap_cancels_the_older_job() -> None:
    row = make_schedule(overlap="cancel", missed="all")
    let_be_due(row, 2 * HOUR)
    Occurrence.objects.create(schedule=row.name, scheduled_for=let_be_due(row), outcome="skipped")
    let_be_due(row, 2 * HOUR)
    fire(row)
    assert outcomes() == ["skipped", "enqueued", "skipped"]
    Occurrence.objects.filter(job_id=None).delete()
    let_be_due(row)
    fire(row)
    assert outcomes() == ["enqueued", "enqueued"]
    assert [job.status for job in jobs_of()] == ["cancelled", "ready"]


def test_an_overlap_waits_in_the_order_of_a_key() -> None:
    row = make_schedule("a {b}", overlap="queue", missed="all")
    let_be_due(row, HOUR)
    fire(row)
    keys = [(job.concurrency_key, job.concurrency_limit) for job in jobs_of("a {b}")]
    assert keys == 2 * [("schedule:a {b}", 1)]


def test_jitter_delays_the_job_and_not_the_occurrence() -> None:
    delays = set()
    for number in range(5):
        row = make_schedule(f"s{number}", jitter=600)
        instant = let_be_due(row)
        fire(row)
        [job] = jobs_of(row.name)
        assert job.scheduled_for == instant
        assert job.run_after is not None
        delays.add(job.run_after - instant)
    assert len(delays) == 5
    assert all(timedelta() <= delay < timedelta(minutes=10) for delay in delays)


def test_after_so_many_runs_it_ends() -> None:
    row = make_schedule(max_runs=2, every=60.0)
    Schedule.objects.update(next_at=timezone.now() - HOUR, missed="all")
    fire(row)
    assert (len(jobs_of()), row.next_at, row.error) == (2, None, "")
    Schedule.objects.update(max_runs=3)
    fire(row)
    assert row.next_at is not None


def test_one_that_has_ended_has_no_next_run() -> None:
    row = make_schedule(ends_at=timezone.now() + MINUTE, cron="0 0 1 1 *")
    assert row.next_at is None
    assert row.error == ""


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
        ({"timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"every": float("nan")}, "finite"),
        ({"every": float("inf")}, "finite"),
        ({"every": -1.0}, "expected every"),
        ({"every": 1e300}, "expected every"),
        ({"jitter": 1e300}, "expected jitter"),
        ({"grace": -1.0}, "expected grace"),
        ({"missed": "never"}, "expected missed"),
        ({"overlap": ""}, "expected overlap"),
        ({"max_runs": 0}, "expected max_runs"),
        ({"except_dates": ["tomorrow"]}, "Invalid isoformat"),
        ({"skipped_time": "x"}, "expected skipped_time"),
    ],
)
def test_a_broken_row_says_so_and_stops_no_other(columns: dict[str, Any], said: str) -> None:
    broken = make_schedule("broken")
    whole = make_schedule("whole")
    if "cron" in columns:
        columns["every"] = None
    Schedule.objects.filter(name="broken").update(**columns)
    instant = let_be_due(whole)
    if not columns.keys() & {
        "cron",
        "every",
        "timezone",
        "max_runs",
        "except_dates",
        "skipped_time",
    }:
        # What is no rule is looked at when it is due.
        let_be_due(broken)
    fire(broken)
    assert said in broken.error
    assert broken.next_at is None
    assert [job.scheduled_for for job in jobs_of("whole")] == [instant]
    repaired = {
        "cron": None, "every": 3600.0, "timezone": "UTC", "jitter": 0, "grace": 60,
        "missed": "skip", "overlap": "allow", "max_runs": None, "except_dates": [],
        "skipped_time": None,
    }  # fmt: skip
    Schedule.objects.filter(name="broken").update(**repaired)
    fire(broken)
    assert (broken.error, broken.next_at is None) == ("", False)


def test_what_an_enqueue_raises_is_in_the_occurrence_and_the_row() -> None:
    row = make_schedule(task_path="tests.schedules.tasks.without_key")
    wrong = make_schedule("wrong arguments", args=[1, 2, 3])
    whole = make_schedule("whole")
    for each in (row, wrong, whole):
        let_be_due(each)
    fire(row)
    assert outcomes() == ["failed"]
    assert "RuntimeError: no key today" in Occurrence.objects.get(schedule=row.name).note
    assert "RuntimeError: no key today" in row.error
    assert row.next_at is not None
    assert row.next_at > timezone.now()
    assert outcomes("wrong arguments") == ["failed"]
    assert outcomes("whole") == ["enqueued"]


def test_an_error_is_gone_with_the_next_job() -> None:
    row = make_schedule(args=[1, 2, 3])
    let_be_due(row, HOUR)
    fire(row)
    assert "TypeError" in row.error
    Schedule.objects.update(args=[])
    Occurrence.objects.all().delete()
    let_be_due(row)
    fire(row)
    assert row.error == ""


def test_a_task_that_is_not_here_is_left_to_others() -> None:
    row = make_schedule(task_path="tests.schedules.tasks.gone")
    turn = fire_due()
    assert turn.taken == 1
    assert list(turn.unknown) == [row.name]
    row.refresh_from_db()
    assert row.error == ""
    assert fire_due(excluded=turn.unknown).taken == 0


def test_a_pause_ends_without_what_was_in_it() -> None:
    row = make_schedule(missed="all")
    let_be_due(row, 5 * HOUR)
    Schedule.objects.update(paused_at=timezone.now())
    fire(row)
    assert not outcomes()
    Schedule.objects.update(paused_at=None)
    fire(row)
    assert not outcomes()
    assert row.next_at is not None
    assert row.next_at > timezone.now()


def test_a_changed_rule_is_planned_anew() -> None:
    row = make_schedule()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_schedule SET every = NULL, cron = '0 0 1 1 *'")
    fire(row)
    year = datetime.now(UTC).year
    assert row.next_at == datetime(year + 1, 1, 1, tzinfo=UTC)


def test_somebody_skipped_it_before() -> None:
    row = make_schedule()
    instant = let_be_due(row)
    Occurrence.objects.create(schedule=row.name, scheduled_for=instant, outcome="skipped")
    fire(row)
    assert outcomes() == ["skipped"]
    assert row.next_at == instant + HOUR
    assert row.runs == 0


def test_one_with_wrong_arguments_among_many_of_a_task() -> None:
    rows = [make_schedule(f"s{number}", args=["x"]) for number in range(5)]
    Schedule.objects.filter(name="s3").update(args=[1, 2, 3])
    Schedule.objects.filter(name="s4").update(args=[], kwargs={"name": "y"})
    for row in rows:
        let_be_due(row)
    fire_due()
    assert [outcomes(row.name) for row in rows] == [
        *3 * [["enqueued"]],
        ["failed"],
        ["enqueued"],
    ]
    assert [jobs_of(f"s{number}")[0].args for number in range(3)] == 3 * [["x"]]
    assert jobs_of("s4")[0].kwargs == {"name": "y"}


def test_arguments_that_nobody_can_decode_are_an_error_of_their_row() -> None:
    row = make_schedule()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_schedule SET args = '5'")
    let_be_due(row)
    fire(row)
    assert "expected a list and a dict" in row.error


def test_a_hundred_in_one_turn_and_the_others_in_the_next() -> None:
    for number in range(105):
        Schedule.objects.create(name=f"s{number}", task_path=NOTE_TIME, every=3600.0)
    assert fire_due().is_full
    assert not fire_due().is_full
    assert fire_due().taken == 0


def test_a_skip_far_ahead_is_not_pruned_before_it_counts() -> None:
    row = make_schedule(cron="0 3 1 1 *")
    instant = skip_next(row.name)
    month = timedelta(days=30)
    Occurrence.objects.update(created_at=timezone.now() - 2 * month)
    with connection.cursor() as cursor:
        prune = partial(
            queries.prune_occurrences, cursor, retention=month.total_seconds(), max_occurrences=9
        )
        assert prune() == 0
        fire_due(now=instant)
        assert not jobs_of()
        Occurrence.objects.update(scheduled_for=timezone.now() - month)
        assert prune() == 1
