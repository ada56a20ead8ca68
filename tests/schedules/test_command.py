"""`manage.py jobs schedules`: what it prints and what it does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone, translation

from django_pgjobs import schedule
from django_pgjobs.models import Job, Occurrence, Schedule
from tests.schedules import tasks
from tests.schedules.support import (
    HOUR,
    MINUTE,
    NOTE_TIME,
    declaring_anew,
    fire,
    jobs_of,
    let_be_due,
    let_wait,
    make_schedule,
    outcomes,
)

pytestmark = pytest.mark.django_db

# Of a backfill without unique keys.
JOINED = ", 0 joined a job that was already there,"


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
    assert "paused: paused by anna: PDF bug" in lines
    assert any(line.startswith("broken: It is not planned: expected cron") for line in lines)
    found = {each["name"]: each for each in json.loads("\n".join(run("list", "--json")))}
    assert found["hourly"]["task_path"] == tasks.note_time.module_path
    assert found["hourly"]["last_job_id"] == jobs_of("hourly")[0].pk
    told = {name: found["paused"][name] for name in ("state", "paused_by", "pause_reason")}
    assert told == {"state": "paused", "paused_by": "anna", "pause_reason": "PDF bug"}


def test_a_time_that_is_not_planned_is_null_for_programs(run: Any) -> None:
    make_schedule("hourly")
    planned = timezone.localtime(Schedule.objects.get().next_at).isoformat(" ", "seconds")
    assert planned in run("list")[1]
    for verb, shown in (("pause", " - "), ("resume", "not planned")):
        run(verb, "hourly")
        assert shown in run("list")[1]
        [found] = json.loads("\n".join(run("list", "--json")))
        assert found["next_at"] is None


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
    with translation.override("de"):
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
    *shown, said = run("backfill", *words, "--dry-run")
    assert said == f"schedule each hour: {len(shown)} would be enqueued"
    assert len(jobs_of()) == 1
    said = "schedule each hour:"
    assert run("backfill", *words) == [
        f"schedule each hour: 3 enqueued{JOINED} 1 were known, 0 failed"
    ]
    times = sorted(job.scheduled_for for job in jobs_of() if job.scheduled_for)
    assert times == [begin + number * HOUR for number in range(4)]
    assert run("backfill", *words) == [
        f"schedule each hour: 0 enqueued{JOINED} 4 were known, 0 failed"
    ]


def test_a_job_that_is_there_with_the_unique_key_is_said_to_be_there(run: Any) -> None:
    row = make_schedule(task_path=tasks.one_at_a_time.module_path)
    known = int(tasks.one_at_a_time.enqueue().id)
    [said] = run("run", row.name, "--by", "anna")
    assert said == (
        f"schedule each hour: nothing enqueued, already there: job {known} has the unique key"
    )
    occurrence = Occurrence.objects.get()
    assert (occurrence.outcome, occurrence.job_id) == ("joined", known)
    assert occurrence.note == "run by anna. A job with its unique key was there."
    assert not jobs_of()
    end = timezone.now()
    words = [row.name, "--from", (end - 2 * HOUR).isoformat(), "--until", end.isoformat()]
    [said] = run("backfill", *words)
    assert said == (
        "schedule each hour: 0 enqueued, 2 joined a job that was already there, 0 were known, "
        "0 failed"
    )
    Job.objects.all().delete()
    [said] = run("run", row.name)
    assert said == f"schedule each hour: enqueued job {jobs_of()[0].pk}"


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


def test_a_date_as_the_end_of_a_range_is_the_whole_day(run: Any, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Kathmandu"
    make_schedule(every=6 * 3600.0)
    words = ["each hour", "--from", "2026-01-02", "--until", "2026-01-03", "--dry-run"]
    *shown, said = run("backfill", *words)
    assert said == "schedule each hour: 8 would be enqueued"
    assert [shown[0][:16], shown[-1][:16]] == ["2026-01-02 05:45", "2026-01-03 23:45"]
    today = timezone.localdate().isoformat()
    begin = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    assert run("backfill", "each hour", "--from", begin.isoformat(), "--until", today, "--dry-run")


def test_a_backfill_of_nothing_says_why(run: Any) -> None:
    day = datetime(2026, 3, 1, tzinfo=UTC)
    make_schedule("over", every=3600.0, ends_at=day)
    make_schedule("later", every=3600.0, starts_at=day)
    make_schedule("yearly", cron="0 0 1 1 *")
    for name, begin, end, said in (
        ("over", "2026-03-02", "2026-03-03", "it ended at 2026-03-01"),
        ("later", "2026-02-02", "2026-02-03", "it starts at 2026-03-01"),
        ("yearly", "2026-02-02", "2026-02-03", "no occurrence in this range needs a job"),
    ):
        words = ["backfill", name, "--from", begin, "--until", end]
        assert said in run(*words, "--dry-run")[-1]
        assert f"0 enqueued{JOINED} 0 were known, 0 failed: {said}" in run(*words)[-1]


def test_the_list_tells_the_next_run_that_is_not_skipped(run: Any) -> None:
    row = make_schedule()
    assert row.next_at is not None
    run("skip", row.name)
    local = timezone.localtime(row.next_at + HOUR).isoformat(" ", "seconds")
    lines = run("list")
    assert local in next(line for line in lines if line.startswith("each hour  "))
    skipped = timezone.localtime(row.next_at).isoformat(" ", "seconds")
    assert f"each hour: skips {skipped}" in lines
    [found] = json.loads("\n".join(run("list", "--json")))
    assert found["next_at"] == (row.next_at + HOUR).isoformat()
    assert found["skipped"] == [row.next_at.isoformat()]
    assert run("unskip", row.name) == [f"schedule each hour: does not skip {skipped} any more"]
    assert run("unskip", row.name) == ["schedule each hour: skipped nothing to come"]
    [found] = json.loads("\n".join(run("list", "--json")))
    assert (found["next_at"], found["skipped"]) == (row.next_at.isoformat(), [])


def test_of_the_last_run_that_is_skipped_nothing_is_next(run: Any) -> None:
    end = timezone.now() + 2 * HOUR
    make_schedule(
        cron="0 * * * *", timezone="UTC", ends_at=end.replace(minute=0, second=0, microsecond=0)
    )
    run("skip", "each hour")
    assert json.loads("\n".join(run("list", "--json")))[0]["next_at"] is None


def test_what_no_worker_takes_is_late(run: Any) -> None:
    row = make_schedule()
    let_be_due(row, 3 * HOUR)
    lines = run("list")
    assert lines[1].split()[2] == "late"
    assert "each hour: late, no worker took it" in lines
    assert "late" in run("next")[0]


def test_what_no_worker_plans_is_late(run: Any) -> None:
    row = make_schedule()
    for minutes, state in ((1, "active"), (3, "late")):
        let_wait(row, minutes * MINUTE)
        lines = run("list")
        assert lines[1].split()[2] == state
    assert "each hour: late, no worker took it" in lines
    assert "0001" not in lines[1]


def test_nothing_is_to_come_of_a_retired_one(run: Any) -> None:
    make_schedule()
    Schedule.objects.update(retired_at=timezone.now())
    assert run("next", "each hour")[1:] == ["  nothing is to come"]
    with pytest.raises(CommandError, match="is retired") as caught:
        run("skip", "each hour")
    assert caught.value.returncode == 2


def test_next_before_the_first_worker(run: Any) -> None:
    schedule(tasks.note_time, cron="@daily", name="new")
    assert run("next") == ["not in the table until a worker starts: new"]


@pytest.mark.parametrize("end", ["0001-01-01", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"])
def test_a_time_at_an_end_of_the_calendar_is_refused(run: Any, end: str) -> None:
    make_schedule()
    for words in (
        ["next", "--after", end],
        ["backfill", "each hour", "--from", end, "--until", "2026-01-02"],
        ["backfill", "each hour", "--from", "2026-01-01", "--until", end],
    ):
        with pytest.raises(CommandError, match="expected an instant"):
            run(*words)


def test_an_error_that_tells_of_a_row_does_not_steer_the_terminal(run: Any) -> None:
    make_schedule()
    Schedule.objects.update(task_path="gone\x1b[31m")
    for words in (["run", "each hour"], ["run", "each hour", "--args", "[]"]):
        with pytest.raises(CommandError, match="gone") as caught:
            run(*words)
        assert "\x1b" not in str(caught.value)
        assert caught.value.returncode == 2


def test_a_count_above_the_bound_is_refused(run: Any) -> None:
    make_schedule()
    assert len(run("next", "each hour", "--count", "1000")) == 1001
    with pytest.raises(CommandError, match="from 1 to 1000, got '1001'"):
        run("next", "each hour", "--count", "1001")


@pytest.mark.parametrize("verb", ["run", "pause", "resume", "skip", "unskip", "next"])
def test_a_schedule_that_is_not_there(run: Any, verb: str) -> None:
    with pytest.raises(CommandError, match="there is no schedule x") as caught:
        run(verb, "x")
    assert caught.value.returncode == 1


def test_numbers_that_json_has_not_are_text(run: Any) -> None:
    make_schedule(grace=float("inf"))
    found = json.loads("\n".join(run("list", "--json")), parse_constant=pytest.fail)
    assert "inf" in json.dumps(found)
