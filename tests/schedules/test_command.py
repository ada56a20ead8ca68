"""`manage.py jobs schedules`: what it prints and what it does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_pgjobs import schedule
from django_pgjobs.models import Job, Occurrence, Schedule
from tests.schedules import tasks
from tests.schedules.support import (
    HOUR,
    NOTE_TIME,
    declaring_anew,
    fire,
    jobs_of,
    let_be_due,
    make_schedule,
    outcomes,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `jobs schedules` with words of a command line; return the lines that it prints."""

    def run_one(*words: object) -> list[str]:
        call_command("jobs", "schedules", *map(str, words))
        return capsys.readouterr().out.splitlines()

    with declaring_anew():
        yield run_one


def test_the_list_tells_state_rule_and_times(run: Any) -> None:
    row = make_schedule("hourly", every=3600.0)
    make_schedule("nightly", cron="0 3 * * *", timezone="Europe/Berlin", changed_fields=["cron"])
    make_schedule("broken", cron="x")
    make_schedule("over", every=3600.0, ends_at=datetime(2020, 1, 1, tzinfo=UTC))
    Schedule.objects.create(name="old", task_path=NOTE_TIME, every=1.0, retired_at=timezone.now())
    make_schedule("paused")
    run("pause", "paused", "--by", "anna", "--reason", "PDF bug")
    let_be_due(row)
    fire(row)
    lines = run("list")
    assert lines[0].split() == ["name", "state", "when", "next", "last", "runs"]
    states = {line.split()[0]: line.split()[1] for line in lines[1:7]}
    assert states == {
        "hourly": "active",
        "nightly": "active",
        "broken": "broken",
        "over": "ended",
        "old": "retired",
        "paused": "paused",
    }
    assert "0 3 * * * Europe/Berlin*" in next(line for line in lines if "nightly" in line)
    assert any(line.startswith("broken: It is not planned: expected cron") for line in lines)
    found = {each["name"]: each for each in json.loads("\n".join(run("list", "--json")))}
    assert found["hourly"]["last_job_id"] == jobs_of("hourly")[0].pk
    assert found["paused"]["state"] == "paused"


def test_the_list_names_what_no_worker_has_written_yet(run: Any) -> None:
    schedule(tasks.note_time, cron="@daily", name="new")
    assert run("list")[-1] == "not in the table until a worker starts: new"


def test_next_tells_what_the_clock_does(run: Any) -> None:
    make_schedule("nightly", cron="30 2 * * *", timezone="Europe/Berlin")
    lines = run("next", "nightly", "--count", 2, "--after", "2026-03-29T00:00Z")
    assert lines == [
        "nightly: 30 2 * * * Europe/Berlin, active",
        "  2026-03-29 03:00:00+02:00  2026-03-29 01:00:00Z  the clock is put forward over its time",
        "  2026-03-30 02:30:00+02:00  2026-03-30 00:30:00Z",
    ]
    lines = run("next", "--count", 1, "--after", "2026-10-24T12:00Z")
    assert lines[1].endswith("the clock shows it twice: the first time")


def test_next_of_a_broken_one_says_why(run: Any) -> None:
    make_schedule("broken", cron="x")
    make_schedule("over", every=3600.0, ends_at=datetime(2020, 1, 1, tzinfo=UTC))
    lines = run("next")
    assert "wrong number of fields" in lines[1]
    assert lines[3] == "  nothing is to come"


def test_a_run_by_hand_is_an_occurrence_of_its_own(run: Any) -> None:
    row = make_schedule(overlap="skip", jitter=600, args=["x"])
    let_be_due(row)
    fire(row)
    before = timezone.now()
    [said] = run("run", row.name, "--by", "anna")
    job = jobs_of()[1]
    assert said == f"schedule each hour: enqueued job {job.pk}"
    assert job.scheduled_for is not None
    assert before <= job.scheduled_for <= timezone.now()
    assert (job.args, job.run_after) == (["x"], None)
    assert Occurrence.objects.get(job_id=job.pk).note == "run by anna"
    row.refresh_from_db()
    assert row.runs == 1


def test_a_run_may_have_other_arguments(run: Any) -> None:
    make_schedule(task_path=tasks.remind.module_path, args=["week"])
    run("run", "each hour", "--args", '["month"]')
    run("run", "each hour", "--args", '{"kind": "year"}')
    run("run", "each hour")
    given = [(job.args, job.kwargs) for job in jobs_of()]
    assert given == [(["month"], {}), ([], {"kind": "year"}), (["week"], {})]
    for wrong in ('{"sort": 1}', "7", "["):
        with pytest.raises(CommandError) as caught:
            run("run", "each hour", "--args", wrong)
        assert caught.value.returncode == 2
    assert len(jobs_of()) == 3


def test_a_run_that_cannot_be_enqueued_leaves_nothing(run: Any) -> None:
    make_schedule("wrong", args=[1, 2, 3])
    make_schedule("gone", task_path="tests.schedules.tasks.gone")
    for name in ("wrong", "gone"):
        with pytest.raises(CommandError) as caught:
            run("run", name)
        assert caught.value.returncode == 2
    assert not Occurrence.objects.exists()
    assert not Job.objects.exists()


def test_pause_and_resume_say_what_they_changed(run: Any) -> None:
    row = make_schedule(missed="all")
    assert run("pause", row.name) == ["schedule each hour: paused"]
    assert run("pause", row.name) == ["schedule each hour: was paused before"]
    let_be_due(row, 3 * HOUR)
    fire(row)
    assert run("resume", row.name) == ["schedule each hour: resumed"]
    assert run("resume", row.name) == ["schedule each hour: was not paused"]
    fire(row)
    assert not outcomes()


def test_skip_takes_the_next_that_is_not_skipped(run: Any) -> None:
    row = make_schedule()
    assert row.next_at is not None
    run("skip", row.name, "--by", "anna")
    run("skip", row.name)
    rows = Occurrence.objects.order_by("scheduled_for")
    assert [each.scheduled_for for each in rows] == [row.next_at, row.next_at + HOUR]
    assert [each.note for each in rows] == ["skipped by anna", "skipped by hand"]
    first = run("next", row.name, "--count", 1)[1]
    assert f"{row.next_at + 2 * HOUR:%Y-%m-%d %H:%M:%S}" in first


def test_backfill_enqueues_what_has_no_row(run: Any) -> None:
    row = make_schedule(overlap="skip")
    instant = let_be_due(row)
    fire(row)
    begin, end = instant - 3 * HOUR, timezone.now()
    words = [row.name, "--from", begin.isoformat(), "--until", end.isoformat()]
    assert len(run("backfill", *words, "--dry-run")) == 3
    assert len(jobs_of()) == 1
    assert run("backfill", *words) == ["schedule each hour: 3 enqueued, 1 were known, 0 failed"]
    times = sorted(job.scheduled_for for job in jobs_of() if job.scheduled_for)
    assert times == [begin + number * HOUR for number in range(4)]
    assert run("backfill", *words) == ["schedule each hour: 0 enqueued, 4 were known, 0 failed"]


def test_backfill_refuses_what_makes_no_sense(run: Any) -> None:
    row = make_schedule("x", every=1.0)
    now = timezone.now()
    for begin, end, said in (
        (now, now - HOUR, "begin before the end"),
        (now, now + HOUR, "an end that is past"),
        (now - timedelta(days=1), now, "at most 1000"),
    ):
        with pytest.raises(CommandError, match=said) as caught:
            run("backfill", row.name, "--from", begin.isoformat(), "--until", end.isoformat())
        assert caught.value.returncode == 2
    assert not Job.objects.exists()


@pytest.mark.parametrize("verb", ["run", "pause", "resume", "skip", "next"])
def test_a_schedule_that_is_not_there(run: Any, verb: str) -> None:
    with pytest.raises(CommandError, match="there is no schedule x") as caught:
        run(verb, "x")
    assert caught.value.returncode == 1
