"""TaskResult: what enqueue() returned, get_result() finds, and refresh() brings up to date."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.test import override_settings
from psycopg import sql

from django_pgjobs import cancel, task
from django_pgjobs.compat import (
    TASKS_PACKAGE,
    AnyResult,
    TaskError,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.factories import get_job, make_job, make_running_job
from tests.test_enqueue import declared, take_context

pytestmark = pytest.mark.django_db

BACKEND = "django_pgjobs.backend.PgJobsBackend"
TaskResultMismatch = __import__(
    f"{TASKS_PACKAGE}.exceptions", fromlist=["TaskResultMismatch"]
).TaskResultMismatch
NEPAL = timezone(timedelta(hours=5, minutes=45))
WHEN = datetime(2031, 5, 6, 7, 8, 9, 1, tzinfo=UTC)


class Unlucky(Exception):
    """Raised by the tasks of this module."""


@task(max_attempts=3, backoff=[0])
def succeed_at_last(path: str) -> dict[str, Any]:
    """Fail as long as the file is not there."""
    if not Path(path).exists():
        Path(path).touch()
        raise Unlucky("not yet")
    return {"at": "last"}


@task(takes_context=True)
def describe_times(context: Any) -> list[bool]:
    """Return which of the times that the context shows have a time zone."""
    result = context.task_result
    times = (result.enqueued_at, result.started_at, result.last_attempted_at, result.task.run_after)
    return [time.tzinfo is not None for time in times]


ENQUEUES: dict[str, Callable[[], AnyResult]] = {
    "plain": lambda: tasks.add.enqueue(1, 2),
    "named": lambda: tasks.add.enqueue(a=1, b="ä"),
    "all options": lambda: declared.enqueue(a=1),
    "using": lambda: declared.using(
        priority=-1, queue_name="q", max_attempts=8, timeout=9, tags=[], metadata={"a": [1]}
    ).enqueue(1),
    "instant": lambda: tasks.add.using(run_after=WHEN).enqueue(1, 2),
    "other zone": lambda: tasks.add.using(run_after=WHEN.astimezone(NEPAL)).enqueue(1, 2),
    "timedelta": lambda: tasks.add.using(run_after=timedelta(days=1, microseconds=1)).enqueue(1, 2),
    "values": lambda: tasks.echo.enqueue((1, b"b"), {"a": (None, 1e16)}, x=-0.0, y=2**70),
    "keys": lambda: tasks.echo.enqueue({1: {None: 2.5}, False: [{1.5: 1}]}, k={2: 3}),
    "empty": lambda: tasks.echo.enqueue(),
    "context": lambda: take_context.enqueue(a=3),
    "async task": lambda: tasks.add_async.enqueue(1, 2),
    "async enqueue": lambda: async_to_sync(tasks.add.aenqueue)(1, 2),
}


@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize("name", ENQUEUES)
def test_get_result_equals_what_enqueue_returned(name: str, use_tz: bool) -> None:
    """Field by field, to the microsecond, in both settings of time zones."""
    with override_settings(USE_TZ=use_tz):
        result = ENQUEUES[name]()
        found = result.task.get_result(result.id)
        assert found == result
        for field in dataclasses.fields(result.task):
            assert getattr(found.task, field.name) == getattr(result.task, field.name), field.name
        assert found.task.func is result.task.func
        assert (found.enqueued_at.tzinfo is not None) == use_tz
        if found.task.run_after is not None:
            assert (found.task.run_after.tzinfo is not None) == use_tz
            assert (result.task.run_after.tzinfo is not None) == use_tz


def test_a_new_result_is_ready_and_has_no_past() -> None:
    result = tasks.add.enqueue(1, b=2)
    assert result.status == TaskResultStatus.READY
    assert result.id == str(int(result.id))
    assert len(result.id) < 64
    assert (result.args, result.kwargs, result.backend) == ([1], {"b": 2}, "default")
    assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)
    assert (result.started_at, result.last_attempted_at, result.finished_at) == (None,) * 3
    assert result.enqueued_at == get_job(result.id).enqueued_at
    assert not result.is_finished
    with pytest.raises(ValueError, match=r"^Task has not finished yet\. Call wait\(\), or refresh"):
        _ = result.return_value


def test_a_result_is_shown_in_one_short_line() -> None:
    result = tasks.add.enqueue(1, 2)
    assert repr(result) == f"<JobResult {result.id} of tests.tasks.add: READY>"


@pytest.mark.parametrize("use_tz", [True, False])
def test_refresh_brings_the_outcome(use_tz: bool) -> None:
    with override_settings(USE_TZ=use_tz):
        result = tasks.add.enqueue(1, 2)
        run_jobs()
        assert result.status == TaskResultStatus.READY
        result.refresh()
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 3)
        assert result.is_finished
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.last_attempted_at == result.started_at
        assert (result.attempts, result.worker_ids) == (1, ["run_jobs"])
        assert (result.finished_at.tzinfo is not None) == use_tz
        assert result == tasks.add.get_result(result.id)


@pytest.mark.parametrize("use_tz", [True, False])
def test_a_running_job_sees_times_as_the_project_has_them(use_tz: bool) -> None:
    """The claim returns them past Django's conversion."""
    with override_settings(USE_TZ=use_tz):
        result = describe_times.using(run_after=timedelta(0)).enqueue()
        run_jobs()
        result.refresh()
    assert result.return_value == [use_tz] * 4


def test_the_async_twins_find_the_same() -> None:
    result = async_to_sync(tasks.add.aenqueue)(1, 2)
    assert async_to_sync(tasks.add.aget_result)(result.id) == result
    run_jobs()
    async_to_sync(result.arefresh)()
    assert result.return_value == 3


def test_a_result_of_none_is_none() -> None:
    result = tasks.sleep_for.enqueue(0)
    run_jobs()
    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, None)


def test_a_failed_job_has_an_error_per_attempt() -> None:
    """Exceptions by path, tracebacks as Python prints them."""
    result = tasks.fail.enqueue("ouch")
    run_jobs()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert len(result.errors) == result.attempts == 3
    error = result.errors[0]
    assert isinstance(error, TaskError)
    assert error.exception_class_path == "tests.tasks.Mishap"
    assert error.exception_class is tasks.Mishap
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert error.traceback.endswith("tests.tasks.Mishap: ouch\n")
    assert result.started_at < result.last_attempted_at <= result.finished_at
    said = "Task failed. Its last error: tests.tasks.Mishap: ouch"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        _ = result.return_value


def test_errors_stay_on_a_job_that_succeeded_later(tmp_path: Path) -> None:
    result = succeed_at_last.enqueue(str(tmp_path / "file"))
    run_jobs()
    result.refresh()
    assert (result.return_value, result.attempts) == ({"at": "last"}, 2)
    assert [error.exception_class for error in result.errors] == [Unlucky]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("ready", TaskResultStatus.READY),
        ("running", TaskResultStatus.RUNNING),
        ("successful", TaskResultStatus.SUCCESSFUL),
        ("failed", TaskResultStatus.FAILED),
        ("cancelled", TaskResultStatus.FAILED),
    ],
)
def test_every_status_is_one_of_djangos_four(status: str, expected: TaskResultStatus) -> None:
    job_id = make_job(status=status)
    assert tasks.add.get_result(str(job_id)).status == expected


def test_a_job_that_waits_for_a_retry_is_ready() -> None:
    job_id = make_job(attempts=1, worker_ids=["w"], due_at=sql.SQL("now() + interval '1 hour'"))
    result = tasks.add.get_result(str(job_id))
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 1)


def test_a_cancelled_job_is_finished() -> None:
    result = tasks.add.enqueue(1, 2)
    assert cancel(result)
    result.refresh()
    assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)
    assert result.finished_at >= result.enqueued_at
    with pytest.raises(ValueError, match=r"^Task failed without an error: it was cancelled\.$"):
        _ = result.return_value


def test_a_running_job_shows_its_attempts() -> None:
    job = make_running_job(attempts=2, worker_ids=["a:1", "b:2"])
    result = tasks.add.get_result(str(job.id))
    assert (result.attempts, result.worker_ids) == (2, ["a:1", "b:2"])
    assert (result.started_at, result.finished_at) == (job.started_at, None)


STRANGE_IDS: list[Any] = [
    "",
    "x",
    "x" * 1_000,
    "9" * 30,
    "9223372036854775807",
    "9223372036854775808",
    "-1",
    "0",
    "\0",
    "\ud800",
    "1_0",
    "+1",
    "٣",
    "1.0",
    "1e3",
    "1' OR '1'='1",
    None,
    5,
    b"1",
]
SPELLINGS = ["0{}", " {}", "{} ", "{}\n", "+{}", "{}.0"]


@pytest.mark.parametrize("result_id", STRANGE_IDS, ids=ascii)
def test_an_unknown_id_of_any_shape_does_not_exist(result_id: Any) -> None:
    """Not ValidationError or DataError, and the transaction goes on."""
    with transaction.atomic():
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(result_id)
        with pytest.raises(TaskResultDoesNotExist):
            async_to_sync(tasks.add.aget_result)(result_id)
        assert tasks.add.enqueue(1, 2).id


def test_an_id_may_be_a_number_as_it_is_in_the_row() -> None:
    """`Job.pk`, `current_job().id` and what on_failure gets are numbers."""
    result = tasks.add.enqueue(1, 2)
    assert tasks.add.get_result(int(result.id)) == result
    assert async_to_sync(tasks.add.aget_result)(int(result.id)) == result
    for other in (True, float(result.id), -int(result.id), 2**63, 10**5_000):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(other)


def test_an_id_is_spelled_in_one_way() -> None:
    result = tasks.add.enqueue(1, 2)
    for spelling in SPELLINGS:
        with pytest.raises(TaskResultDoesNotExist):
            tasks.add.get_result(spelling.format(result.id))


def test_a_result_that_was_pruned_does_not_exist_any_more() -> None:
    result = tasks.add.enqueue(1, 2)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_job")
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_the_result_of_another_task_is_a_mismatch() -> None:
    result = tasks.add.enqueue(1, 2)
    with pytest.raises(TaskResultMismatch, match=r"tests\.tasks\.add"):
        tasks.echo.get_result(result.id)


def test_a_job_whose_queue_left_the_settings_is_still_found() -> None:
    """Rebuilding a task does not validate it."""
    result = tasks.add.using(queue_name="old").enqueue(1, 2)
    with override_settings(TASKS={"default": {"BACKEND": BACKEND, "QUEUES": ["new"]}}):
        assert tasks.add.using(queue_name="new").get_result(result.id) == result
        result.refresh()


def finished() -> AnyResult:
    """Return a result with everything in it: options, a value, errors."""
    later = declared.using(run_after=timedelta(seconds=0), metadata={"a": [1]})
    result = later.enqueue(a=1)
    entry = {"exception_class": "builtins.KeyError", "message": "m", "traceback": "t"}
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET status = 'successful', result = '[1]', errors = %s::jsonb,"
            " finished_at = now(), worker_ids = '{w}' WHERE id = %s",
            [json.dumps([entry]), int(result.id)],
        )
    result.refresh()
    return result


def test_results_can_be_taken_apart() -> None:
    result = finished()
    taken = dataclasses.asdict(result)
    assert taken["errors"] == [{"exception_class_path": "builtins.KeyError", "traceback": "t"}]
    assert taken["task"]["metadata"] == {"a": [1]}
    assert taken["_return_value"] == [1]


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks can be pickled from Django 6.1 on")
def test_tasks_and_results_can_be_pickled_and_copied() -> None:
    """With our further fields."""
    result = finished()
    for again in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert again == result
        assert again.errors[0].exception_class is KeyError
        assert again.return_value == [1]
        assert again.task.func is declared.func
    assert pickle.loads(pickle.dumps(tasks.fail)) == tasks.fail
