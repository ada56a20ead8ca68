"""Schedules in code: what is refused, and the rows that a worker makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_pgjobs import schedule
from django_pgjobs.compat import InvalidTask
from django_pgjobs.declaring.schedules import declared_schedules, schedule_of_task
from django_pgjobs.models import Schedule
from django_pgjobs.schedules.firing import fire_due
from django_pgjobs.schedules.plans import rule_of
from django_pgjobs.schedules.syncing import sync_schedules
from django_pgjobs.worker.process.schedule_log import log_sync
from tests import tasks as plain_tasks
from tests.schedules import tasks
from tests.schedules.support import NOTE_TIME, declaring_anew


@pytest.fixture(autouse=True)
def only_these() -> Iterator[None]:
    with declaring_anew():
        yield


def test_a_schedule_has_the_name_of_its_task_and_the_zone_of_the_project(settings: Any) -> None:
    declared = schedule(tasks.note_time, cron="0 3 * * *")
    assert (declared.name, declared.rule.timezone) == (NOTE_TIME, settings.TIME_ZONE)
    assert declared_schedules() == {NOTE_TIME: declared}


def test_wrong_settings_are_left_to_the_check_that_names_them(settings: Any) -> None:
    """Else the import of a tasks.py would end every command with a traceback."""
    settings.PGJOBS = {"CONCURENCY": 8}
    assert schedule(tasks.note_time, cron="0 3 * * *").name == NOTE_TIME


@pytest.mark.parametrize(
    ("given", "cron", "every"),
    [
        ("0 3 * * *", "0 3 * * *", None),
        (timedelta(minutes=5), None, timedelta(minutes=5)),
        ({"cron": "@daily", "timezone": "Asia/Tokyo"}, "@daily", None),
    ],
)
def test_the_option_of_a_task(given: Any, cron: str | None, every: timedelta | None) -> None:
    schedule_of_task(tasks.note_time, given)
    [declared] = declared_schedules().values()
    assert (declared.rule.cron, declared.rule.every) == (cron, every)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"priority": 5}, "another priority: jobs"),
        ({"queue_name": "reports", "tags": ["x"]}, "another queue_name, tags: jobs"),
        ({"run_after": timedelta(hours=1)}, "another run_after: jobs"),
    ],
)
def test_a_copy_of_a_task_with_other_options_is_refused(options: Any, said: str) -> None:
    with pytest.raises(InvalidTask, match=said):
        schedule(tasks.note_time.using(**options), cron="@daily")
    assert not declared_schedules()


def test_a_copy_of_a_task_with_the_same_options_is_the_task() -> None:
    schedule(tasks.note_time.using(), cron="@daily")
    assert list(declared_schedules()) == [NOTE_TIME]


@pytest.mark.parametrize("given", [5, [], ["0 3 * * *"], {"crom": "0 3 * * *"}, "x", timedelta()])
def test_an_option_that_is_no_schedule_is_refused(given: Any) -> None:
    with pytest.raises(InvalidTask):
        schedule_of_task(tasks.note_time, given)
    assert not declared_schedules()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either cron or every"),
        ({"cron": "0 3 * *"}, "wrong number of fields"),
        ({"cron": "@daily", "timezone": "Europe/Berln"}, "Europe/Berln"),
        ({"cron": "@daily", "args": [1, 2]}, "note_time"),
        ({"cron": "@daily", "args": "x"}, "expected args to be a list"),
        ({"cron": "@daily", "args": [(1, 2)]}, "JSON gives back"),
        ({"cron": "@daily", "args": [{1: 2}]}, "JSON gives back"),
        ({"cron": "@daily", "args": [object()]}, "args"),
        ({"cron": "@daily", "kwargs": {"nane": "x"}}, "nane"),
        ({"cron": "@daily", "kwargs": ["x"]}, "expected kwargs to be a dict"),
        ({"cron": "@daily", "name": "x" * 201}, "up to 200 bytes"),
        ({"cron": "@daily", "name": "a\nb"}, "expected name to be a line"),
        ({"cron": "@daily", "missed": "none"}, "latest, skip, all"),
        ({"cron": "@daily", "overlap": "wait"}, "allow, skip, queue, cancel"),
        ({"cron": "@daily", "max_runs": 0}, "expected max_runs"),
        ({"cron": "@daily", "max_runs": 3_000_000_000}, "from 1 to 2147483647, got 3000000000"),
        ({"cron": "@daily", "jitter": 5}, "expected jitter"),
        ({"cron": "@daily", "jitter": timedelta(days=2)}, "expected jitter"),
        ({"cron": "@daily", "grace": timedelta(-1)}, "expected grace"),
        ({"cron": "@daily", "until": 5}, "unknown options ['until']. Expected"),
        ({"cron": "@daily", "overlapp": "skip"}, "['overlapp']. Did you mean overlap? Expected"),
        ({"cron": "@daily", "queue_name": "mail", "until": 5}, "queue_name is the task's"),
        ({"every": 60}, "a timedelta from 1 s to 10 years, got 60. Write timedelta(seconds=60)."),
        ({"every": timedelta()}, "a timedelta from 1 s to 10 years, got datetime.timedelta(0)."),
        (
            {"cron": "CRON_TZ=Asia/Tokyo 0 3 * * *"},
            "Write cron='0 3 * * *', timezone='Asia/Tokyo'.",
        ),
        ({"cron": "@reboot"}, "workers come and go"),
        ({"cron": "@daily", "starts": datetime(2026, 1, 1)}, "tzinfo=ZoneInfo("),  # noqa: DTZ001
        ({"cron": "@daily", "name": " x"}, "without blanks around it, got ' x'"),
        ({"cron": "@daily", "name": "x\t"}, "without control characters"),
        ({"cron": "@daily", "name": "a\x1b[31m"}, "without control characters"),
        ({"cron": "@daily", "name": 5}, "expected name"),
    ],
)
def test_a_mistake_fails_the_import(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidTask) as refusal:
        schedule(tasks.note_time, **options)
    assert f"schedule of {NOTE_TIME}: " in str(refusal.value)
    assert said in str(refusal.value)
    assert not declared_schedules()


def test_two_schedules_of_a_task_need_two_names() -> None:
    schedule(tasks.note_time, cron="@daily")
    schedule(tasks.note_time, cron="@daily")
    with pytest.raises(InvalidTask, match="a name of its own"):
        schedule(tasks.note_time, cron="@hourly")
    schedule(tasks.note_time, cron="@hourly", name="hourly")
    with pytest.raises(InvalidTask, match="a name of its own"):
        schedule(tasks.retry_once, cron="@hourly", name="hourly")
    assert list(declared_schedules()) == ["hourly", NOTE_TIME]


def test_a_queue_of_its_own_needs_a_task_without_a_key() -> None:
    with pytest.raises(InvalidTask, match="has a concurrency key"):
        schedule(tasks.without_key, cron="@daily", overlap="queue")


def test_what_is_no_task_is_refused() -> None:
    with pytest.raises(InvalidTask, match="expected a task"):
        schedule(print, cron="@daily")  # type: ignore[arg-type]


@pytest.mark.django_db
def test_a_worker_writes_rows_and_plans_them() -> None:
    starts = datetime(2026, 1, 1, 12, tzinfo=UTC)
    declared = schedule(
        tasks.note_time,
        every=timedelta(hours=2),
        name="all",
        kwargs={"name": "x"},
        timezone="Europe/Berlin",
        starts=starts,
        ends=starts + timedelta(days=36500),
        except_dates=[date(2026, 2, 1)],
        jitter=timedelta(seconds=5),
        missed="all",
        grace=timedelta(hours=1),
        overlap="skip",
        max_runs=3,
    )
    assert sync_schedules().new == ["all"]
    fire_due()
    row = Schedule.objects.get()
    assert rule_of(row) == declared.rule
    assert (row.task_path, row.kwargs) == (NOTE_TIME, {"name": "x"})
    assert (row.jitter, row.missed, row.grace, row.overlap) == (5, "all", 3600, "skip")
    assert row.max_runs == 3
    assert row.declared == declared.columns()
    assert row.next_at is not None
    assert not any(sync_schedules())


@pytest.mark.django_db
def test_a_change_of_the_code_leaves_what_a_person_changed() -> None:
    schedule(tasks.note_time, cron="0 3 * * *", timezone="UTC", name="x")
    sync_schedules()
    Schedule.objects.update(cron="0 4 * * *", changed_fields=["cron"])
    fire_due()
    assert not any(sync_schedules())
    with declaring_anew():
        schedule(tasks.note_time, cron="0 5 * * *", timezone="UTC", name="x", overlap="skip")
        assert sync_schedules().changed == ["x"]
    row = Schedule.objects.get()
    assert (row.cron, row.overlap, row.declared["cron"]) == ("0 4 * * *", "skip", "0 5 * * *")


@pytest.mark.django_db
def test_a_changed_time_is_planned_anew() -> None:
    schedule(tasks.note_time, every=timedelta(days=300), name="x")
    sync_schedules()
    fire_due()
    with declaring_anew():
        schedule(tasks.note_time, every=timedelta(minutes=1), name="x")
        sync_schedules()
    fire_due()
    row = Schedule.objects.get()
    assert row.next_at is not None
    assert row.next_at <= timezone.now() + timedelta(minutes=1)


@pytest.mark.django_db
def test_a_row_that_a_person_made_is_adopted_as_it_is() -> None:
    Schedule.objects.create(name="x", task_path=NOTE_TIME, cron="0 1 * * *", timezone="UTC")
    schedule(tasks.note_time, cron="0 2 * * *", timezone="UTC", name="x", overlap="allow")
    assert sync_schedules().changed == ["x"]
    row = Schedule.objects.get()
    assert (row.cron, row.changed_fields) == ("0 1 * * *", ["cron"])
    assert row.declared["cron"] == "0 2 * * *"


@pytest.mark.django_db
def test_one_that_was_retired_comes_back() -> None:
    schedule(tasks.note_time, cron="0 2 * * *", name="x")
    sync_schedules()
    Schedule.objects.update(retired_at=timezone.now())
    assert sync_schedules().returned == ["x"]
    assert Schedule.objects.get().retired_at is None


def test_a_task_of_django_can_have_a_schedule() -> None:
    declared = schedule(plain_tasks.add, every=timedelta(hours=1), args=[1, 2])
    assert declared.task is plain_tasks.add


@pytest.mark.django_db
def test_a_row_that_a_person_made_has_task_and_arguments_of_the_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theirs = tasks.remind.module_path
    Schedule.objects.create(name="x", task_path=theirs, args=["week"], cron="0 1 * * *")
    schedule(tasks.note_time, cron="0 2 * * *", name="x", kwargs={"name": "y"})
    synced = sync_schedules()
    row = Schedule.objects.get()
    assert (row.task_path, row.args, row.kwargs) == (NOTE_TIME, [], {"name": "y"})
    assert (row.cron, "task_path" in row.changed_fields) == ("0 1 * * *", False)
    with caplog.at_level("WARNING", logger="django_pgjobs"):
        log_sync(synced)
    assert theirs in caplog.text
    assert NOTE_TIME in caplog.text


@pytest.mark.django_db
def test_what_a_person_changed_by_sql_stays_when_the_code_changes() -> None:
    schedule(tasks.note_time, cron="0 3 * * *", timezone="UTC", name="x")
    sync_schedules()
    Schedule.objects.update(cron="0 4 * * *", args=["x"])
    with declaring_anew():
        schedule(tasks.note_time, cron="0 5 * * *", timezone="UTC", name="x", overlap="skip")
        sync_schedules()
    row = Schedule.objects.get()
    assert (row.cron, row.overlap, row.changed_fields) == ("0 4 * * *", "skip", ["cron"])
    # But for what is of the code alone.
    assert row.args == []


@pytest.mark.django_db
@pytest.mark.parametrize("declared", [[], {"of_a_later_release": 1}, {"starts_at": "someday"}])
def test_a_row_that_says_odd_things_of_the_code_follows_it(declared: Any) -> None:
    schedule(tasks.note_time, cron="0 3 * * *", name="x")
    sync_schedules()
    Schedule.objects.update(declared=declared)
    assert sync_schedules().changed == ["x"]
    assert not any(sync_schedules())


@pytest.mark.django_db
def test_task_and_arguments_are_those_of_the_code_though_it_has_not_changed() -> None:
    schedule(tasks.note_time, cron="0 3 * * *", name="x", args=["ours"])
    sync_schedules()
    Schedule.objects.update(task_path=tasks.remind.module_path, args=["theirs"], cron="0 4 * * *")
    assert sync_schedules().changed == ["x"]
    row = Schedule.objects.get()
    assert (row.task_path, row.args, row.cron) == (NOTE_TIME, ["ours"], "0 4 * * *")
    assert not any(sync_schedules())
