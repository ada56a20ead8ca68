"""Rows that cannot run: undecodable arguments, unknown tasks, used-up attempts. Alone, each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs import task
from django_pgjobs.worker.running.outcome import Kind
from tests import tasks
from tests.factories import count_jobs, get_job, make_job, make_jobs
from tests.helpers import wait_until
from tests.worker.support import Bench, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]

UNDECODABLE = {
    "5,000 levels": {"args": sql.SQL("(repeat('[', 5000) || repeat(']', 5000))::json")},
    "a number of 5,000 digits": {"args": sql.SQL("('[' || repeat('9', 5000) || ']')::json")},
    "args is an object": {"args": sql.SQL("'{\"a\": 1}'")},
    "args is a string": {"args": sql.SQL("'\"ab\"'")},
    "args is null": {"args": sql.SQL("'null'")},
    "kwargs is an array": {"args": [], "kwargs": sql.SQL("'[1, 2]'")},
    "too few arguments": {"args": [1]},
    "unknown argument": {"args": [1, 2], "kwargs": {"c": 3}},
}


@pytest.mark.parametrize("name", UNDECODABLE)
def test_a_row_that_cannot_be_called_fails_alone(drain: Start, name: str) -> None:
    """Its neighbours of the same claim run."""
    before = tasks.add.enqueue(1, 2)
    bad = make_job(max_attempts=1, **UNDECODABLE[name])
    after = tasks.add.enqueue(3, 4)
    drain(concurrency=1)
    assert [get_job(job.id).result for job in (before, after)] == [3, 7]
    with_errors = get_status_and_errors(bad)
    assert with_errors[0] == "failed"
    assert with_errors[1][0]["message"]


def get_status_and_errors(job_id: int) -> tuple[str, list[dict[str, Any]]]:
    """Read a job without decoding its arguments."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT status, errors::text FROM pgjobs_job WHERE id = %s", [job_id])
        status, errors = cursor.fetchone()
    return status, json.loads(errors)


@pytest.mark.parametrize(
    "name", ["a number of 5,000 digits", "args is an object", "kwargs is an array"]
)
def test_undecodable_arguments_are_not_tried_again(bench: Bench, name: str) -> None:
    """They will not be better next time; S4.23."""
    job_id = make_job(max_attempts=9, **UNDECODABLE[name])
    assert bench.run().kind is Kind.FAIL
    status, [error] = get_status_and_errors(job_id)
    assert status == "failed"
    assert error["exception_class"] == "django_pgjobs.exceptions.PayloadError"


def test_a_job_of_an_unknown_task_waits_visibly_and_counts_no_attempt(
    drain: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """S5.7: an error in the log, a note on the row, and others run."""
    unknown = make_job("shop.tasks.not_deployed_yet")
    known = tasks.add.enqueue(1, 2)
    drain()
    row = get_job(unknown)
    assert (row.status, row.attempts, row.worker_ids, row.note) == ("ready", 0, [], "unknown task")
    assert row.errors == []
    assert (row.due_at - row.last_attempted_at).total_seconds() == pytest.approx(5, abs=1)
    assert get_job(known.id).status == "successful"
    assert "shop.tasks.not_deployed_yet" in caplog.text


def test_the_longer_a_job_of_an_unknown_task_has_waited_the_rarer_it_is_offered(
    bench: Bench,
) -> None:
    hour = sql.SQL("now() - interval '1 hour'")
    minute = sql.SQL("now() - interval '1 minute'")
    jobs = [make_job("no.task", enqueued_at=since) for since in (hour, minute)]
    delays = [bench.run().delay for _ in jobs]
    assert delays == [300.0, pytest.approx(60, abs=20)]


late = None


def late_function() -> list[int]:
    """The task `late` of this module, which is not declared at first."""
    return [1]


late_function.__qualname__ = late_function.__name__ = "late"


def test_a_worker_that_knows_the_task_runs_the_job(
    bench: Bench, drain: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was claimed by one that does not, first."""
    job_id = make_job("tests.worker.test_rows.late", args=[])
    assert bench.run().kind is Kind.UNKNOWN
    monkeypatch.setattr(sys.modules[__name__], "late", task(late_function))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET due_at = NULL")
    drain()
    assert get_job(job_id).result == [1]


def test_unknown_tasks_fail_where_the_project_wants_that(drain: Start) -> None:
    """UNKNOWN_TASK = 'fail'."""
    unknown = make_job("shop.tasks.removed")
    drain(unknown_fails=True)
    row = get_job(unknown)
    assert row.status == "failed"
    assert row.errors[0]["exception_class"] == "django_pgjobs.exceptions.UnknownTask"
    assert "shop.tasks.removed" in row.errors[0]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "os.system",
        "tests.tasks",
        "tests.tasks.Mishap",
        "tests.tasks.append_line",
        "x",
        "..",
        "é.\n.x",
    ],
)
def test_a_path_that_is_no_declared_task_is_unknown(bench: Bench, path: str) -> None:
    """A row's text is looked up among declared tasks and never imported or called."""
    make_job(path)
    assert bench.run().kind is Kind.UNKNOWN


def test_a_claim_beyond_the_last_attempt_fails_and_does_not_run(bench: Bench) -> None:
    """Whatever brought the row there, at most max_attempts runs."""
    job_id = make_job("tests.worker.tasks.never_called", max_attempts=2, attempts=2)
    assert bench.run().kind is Kind.FAIL
    row = get_job(job_id)
    assert row.status == "failed"
    assert row.errors[0]["exception_class"] == "django_pgjobs.exceptions.WorkerLost"


def test_jobs_of_queues_the_worker_does_not_serve_stay(drain: Start) -> None:
    mail, other = tasks.add.using(queue_name="mail").enqueue(1, 2), tasks.add.enqueue(1, 2)
    drain(queues=("mail",))
    assert [get_job(job.id).status for job in (mail, other)] == ["successful", "ready"]


def test_jobs_of_backends_the_worker_does_not_serve_stay(start_thread: Start) -> None:
    job_id = make_job(backend="another")
    start_thread(drain=True).join()
    assert get_job(job_id).status == "ready"


@pytest.mark.slow
def test_a_thousand_unknown_jobs_do_not_hold_up_one_that_is_known(
    drain: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """S5.14: one failing type cannot block the queue, nor flood whoever is told of errors."""
    make_jobs(1_000, "no.such_task", priority=50)
    known = tasks.add.enqueue(1, 2)
    drain()
    assert get_job(known.id).status == "successful"
    wait_until(lambda: count_jobs(status="running") == 0)
    assert count_jobs(status="ready", attempts=0) == 1_000
    assert count_jobs(note="unknown task") > 0
    [error] = [record for record in caplog.records if record.levelname == "ERROR"]
    said = error.getMessage()
    assert "task=no.such_task is unknown here, its jobs wait (" in said
    assert said.endswith(
        ": deploy its code, or load it: as tasks.py of an app in INSTALLED_APPS, or by "
        "PGJOBS['TASK_MODULES']"
    )
