"""The API and the commands where USE_TZ is False: times without a zone are those of TIME_ZONE."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from django_pgjobs import current_job, pause, schedule, task
from django_pgjobs.control.explain import explain
from django_pgjobs.models import Job, Pause, Schedule
from django_pgjobs.queries.cursor import read_any_instant
from django_pgjobs.schedules.control import backfill, run_now, skip_next, upcoming
from django_pgjobs.schedules.importing import row_of_celery_beat, row_of_django_q
from django_pgjobs.schedules.plans import rule_of
from django_pgjobs.schedules.skipping import next_kept, skipped_ahead, unskip
from django_pgjobs.schedules.syncing import changed_columns, sync_schedules
from django_pgjobs.testing import simulated_time
from django_pgjobs.values.moments import aware
from tests import tasks
from tests.factories import make_job
from tests.schedules.support import (
    HOUR,
    NOTE_TIME,
    declaring_anew,
    fire,
    jobs_of,
    let_be_due,
    let_wait,
    make_schedule,
)
from tests.schedules.tasks import note_time
from tests.schedules.test_importing import beat, interval, q2
from tests.test_client import make_finished_job

pytestmark = pytest.mark.django_db

RAN_FOR: list[datetime | None] = []


@task
def note_instant() -> None:
    """Keep the time of the schedule."""
    RAN_FOR.append(current_job().scheduled_for)


@pytest.fixture(autouse=True)
def no_time_zones(settings: Any) -> None:
    """Kathmandu is 5:45 ahead of UTC."""
    settings.USE_TZ = False


def local(*numbers: int) -> datetime:
    """Return a time as Django has it."""
    return datetime(*numbers)  # noqa: DTZ001


# Instants


def test_the_time_between_two_local_times_is_what_passes(settings: Any) -> None:
    """In the night of the 29th clocks are put forward."""
    settings.TIME_ZONE = "Europe/Berlin"
    passed = aware(local(2026, 3, 29, 4)) - aware(local(2026, 3, 29, 1))
    assert passed == timedelta(hours=2)


def test_a_statement_tells_the_two_hours_of_one_name_apart(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    with connection.cursor() as cursor:
        read_any_instant(cursor)
        cursor.execute("SELECT '2026-10-25T00:30Z'::timestamptz, '2026-10-25T01:30Z'::timestamptz")
        found = cursor.fetchone()
    assert found == tuple(datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1))


# What keeps jobs


def test_a_job_of_a_paused_queue_is_explained() -> None:
    job_id = make_job(queue_name="mail")
    pause(queue="mail", until=local(2031, 5, 6, 7))
    assert Pause.objects.get().resume_at == local(2031, 5, 6, 7)
    assert "it resumes May 6, 2031 07:00:00 +0545 (in " in str(explain(job_id))


# Schedules


def test_a_schedule_with_a_beginning_and_an_end_is_planned_and_run() -> None:
    bounds = {"starts_at": local(2026, 1, 1), "ends_at": local(2099, 1, 1)}
    row = make_schedule("hourly", **bounds)
    assert row.error == ""
    [planned] = upcoming(row, 1)
    assert row.next_at is not None and aware(row.next_at) == planned.at
    assert run_now("hourly").is_new


def test_a_schedule_that_is_due_gets_its_job() -> None:
    row = make_schedule("hourly")
    instant = let_be_due(row)
    turn = fire(row)
    assert (row.error, turn.errors, aware(jobs_of("hourly")[0].scheduled_for)) == ("", {}, instant)


def test_what_waited_for_a_scheduler_is_made_up_for() -> None:
    row = make_schedule("hourly", missed="all", grace=86_400.0)
    let_wait(row, timedelta(minutes=150))
    fire(row)
    assert row.error == ""
    assert len(jobs_of("hourly")) >= 2


def test_a_skipped_occurrence_is_passed_over() -> None:
    row = make_schedule("hourly")
    first = skip_next("hourly")
    [skipped] = skipped_ahead(["hourly"])["hourly"]
    assert skipped == first
    assert next_kept(row, [skipped]) == first + HOUR
    assert unskip("hourly") == [first]


def test_a_schedule_of_the_code_goes_on_to_follow_it() -> None:
    """It is no change by a person that the row has its beginning in local time."""
    for year in (2030, 2031):
        with declaring_anew():
            schedule(note_time, name="mine", every=HOUR, starts=datetime(year, 1, 1, tzinfo=UTC))
            sync_schedules()
    row = Schedule.objects.get()
    assert (row.starts_at, row.changed_fields) == (local(2031, 1, 1, 5, 45), [])
    assert changed_columns(row) == []


def test_a_backfill_is_of_local_times() -> None:
    make_schedule("hourly")
    found = [backfill("hourly", local(2026, 1, 1), local(2026, 1, 1, 1, 45)) for _ in range(2)]
    assert [(each.enqueued, each.known) for each in found] == [(2, 0), (0, 2)]
    begins = Job.objects.order_by("id").values_list("scheduled_for", flat=True)
    assert list(begins) == [local(2026, 1, 1, 0, 45), local(2026, 1, 1, 1, 45)]


def test_schedules_of_others_have_local_times() -> None:
    assert row_of_django_q(q2(next_run=local(2030, 5, 15, 3, 30))).cron == "30 3 * * *"
    once = row_of_django_q(q2(next_run=local(2030, 5, 15, 3, 30), schedule_type="O"))
    assert once.starts_at == datetime(2030, 5, 14, 21, 45, tzinfo=UTC)
    beaten = row_of_celery_beat(beat(interval=interval(1, "hours"), start_time=local(2030, 1, 1)))
    assert rule_of(beaten).starts == datetime(2029, 12, 31, 18, 15, tzinfo=UTC)


def test_the_clock_of_a_test_takes_local_times() -> None:
    RAN_FOR.clear()
    with declaring_anew():
        schedule(note_instant, name="hourly", every=HOUR)
        with simulated_time(local(2026, 3, 28, 12)) as clock:
            tasks.add.using(run_after=timedelta(minutes=50)).enqueue(1, 2)
            assert clock.advance_to(local(2026, 3, 28, 13)) == 2
    [instant] = RAN_FOR
    assert instant == datetime(2026, 3, 28, 7, tzinfo=UTC)


# Commands


def test_a_pause_of_the_command_ends_at_its_local_time(run: Any) -> None:
    said = run("pause", "--queue", "mail", "--until", "2031-05-06T07:00")
    assert said == "queue mail: paused until 2031-05-06 07:00:00 +0545\n"
    assert Pause.objects.get().resume_at == local(2031, 5, 6, 7)
    assert "(resumes in " in run("stats")


def test_a_day_that_is_not_over_is_backfilled_until_now(run: Any) -> None:
    make_schedule("hourly")
    today = f"{datetime.now():%Y-%m-%d}"  # noqa: DTZ005
    words = ("backfill", "hourly", "--from", today, "--until", today)
    assert " would be enqueued" in run("schedules", *words, "--dry-run")


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        ({"ends_at": local(2020, 1, 1)}, "it ended at 2020-01-01 00:00:00+05:45"),
        ({"starts_at": local(2099, 1, 1)}, "it starts at 2099-01-01 00:00:00+05:45"),
    ],
)
def test_a_backfill_says_which_bound_left_it_empty(run: Any, bounds: Any, why: str) -> None:
    make_schedule("hourly", **bounds)
    words = ("backfill", "hourly", "--from", "2026-01-01", "--until", "2026-01-02T00:00")
    assert why in run("schedules", *words, "--dry-run")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("list", ["enqueued_at"]),
        ("failures", ["first_at", "last_at"]),
        ("schedules list", ["next_at"]),
        ("tokens list", ["created_at", "expires_at"]),
    ],
)
def test_programs_read_times_with_their_zone(run: Any, words: str, names: list[str]) -> None:
    make_job()
    make_finished_job("failed", result=None)
    make_schedule("hourly")
    run("tokens", "create", "node-1", "--may", "work", "--expires", "90d")
    [row] = json.loads(run(*words.split(), "--json"))
    for name in names:
        assert datetime.fromisoformat(row[name]).tzinfo is not None


def test_all_of_a_job_is_shown_with_zones(run: Any) -> None:
    job_id = tasks.add.using(run_after=local(2031, 5, 6, 7)).enqueue(1, 2).id
    assert json.loads(run("show", job_id, "--json"))["run_after"] == "2031-05-06T01:15:00Z"


def test_a_token_is_rotated(run: Any) -> None:
    run("tokens", "create", "node-1", "--may", "work", "--expires", "90d")
    [token] = json.loads(run("tokens", "list", "--json"))
    assert run("tokens", "rotate", token["id"])
    assert len(json.loads(run("tokens", "list", "--json"))) == 2


def test_the_schedules_that_are_due_next_are_listed(run: Any) -> None:
    make_schedule("hourly", starts_at=local(2026, 1, 1))
    said = run("schedules", "next", "hourly", "--count", 2, "--after", "2026-01-01T00:00")
    assert said.splitlines()[0] == "hourly: every 1 h, active"
    assert len(said.splitlines()) == 3
    assert NOTE_TIME in run("schedules", "list", "--json")
