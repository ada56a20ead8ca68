"""What workers over HTTP say goes the way of what runs in our own: counted, told, worked around."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgjobs import workflow
from django_pgjobs.http import pool, reporting
from django_pgjobs.http.station import station
from django_pgjobs.models import Job, Statistic
from django_pgjobs.signals import task_finished
from django_pgjobs.worker.running import announcer
from tests.factories import get_job
from tests.helpers import wait_until
from tests.http import tasks
from tests.http.support import Api, problem_of
from tests.http.workers import Remote, body_of
from tests.tasks import add


def test_statistics_count_what_ran_elsewhere(api: Api) -> None:
    for number in range(3):
        tasks.resize.enqueue(number)
    worker = Remote(api)
    first, second, third = worker.claim(3)
    worker.finish(first)
    worker.finish(second)
    worker.say(third, "failure", {"error": {"type": "E"}, "retry": False})
    station.end()
    [row] = Statistic.objects.filter(task_path=tasks.resize.module_path, successful__gt=0)
    assert (row.queue_name, row.successful, row.failed, sum(row.runs)) == ("node", 2, 1, 3)


@pytest.mark.parametrize(
    ("address", "body"),
    [
        ("assignments/{}/result", {"result": 1, "progress": {"done": 2}}),
        (
            "assignments/{}/failure",
            {"error": {"type": "E"}, "retry": False, "progress": {"done": 2}},
        ),
        ("results", {"results": [{"assignment": "{}", "result": 1, "progress": {"done": 2}}]}),
    ],
    ids=["result", "failure", "results"],
)
def test_the_last_progress_is_stored_with_the_end(
    api: Api, address: str, body: dict[str, Any]
) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    worker.beat(given, progress={given["assignment"]: {"done": 1}})
    text = json.dumps(body).replace("{}", given["assignment"])
    body_of(api.post(address.format(given["assignment"]), json.loads(text)))
    job = get_job(job_id)
    assert job.status in ("successful", "failed")
    assert job.progress["done"] == 2


def test_of_two_reports_of_one_attempt_the_progress_of_the_first_is_stored(api: Api) -> None:
    """As is its result."""
    job_id = int(tasks.resize.enqueue(1).id)
    [given] = Remote(api).claim()
    named = {"assignment": given["assignment"]}
    ends = [{**named, "result": number, "progress": {"done": number}} for number in (1, 2)]
    body = body_of(api.post("results", {"results": ends}))
    assert [said["status"] for said in body["results"]] == ["stored", "lost"]
    job = get_job(job_id)
    assert (job.result, job.progress["done"]) == (1, 1)


@pytest.mark.parametrize("progress", [None, {}, {"done": "half"}], ids=["null", "empty", "odd"])
def test_an_end_with_odd_progress_is_refused_as_a_whole(api: Api, progress: Any) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    answer = worker.say(given, "result", {"result": 1, "progress": progress})
    assert answer.status_code == (200 if progress is None else 422)
    assert get_job(job_id).status == ("successful" if progress is None else "running")


def test_a_job_that_fails_for_good_is_one_error_in_the_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        tasks.convert.enqueue()
    worker = Remote(api)
    error = {"error": {"type": "OutOfPaper", "message": "tray 2"}}
    first, second = worker.claim(2)
    worker.say(first, "failure", error)
    worker.say(second, "failure", {**error, "retry": False})
    records = [each for each in caplog.records if each.name == "django_pgjobs.worker"]
    assert [each.levelname for each in records] == ["WARNING", "ERROR"]
    assert records[1].getMessage().startswith(f"FAIL    {tasks.convert.module_path} #")
    assert "error=OutOfPaper: tray 2" in records[1].getMessage()
    assert records[1].exc_info is not None


def test_task_finished_is_sent_where_the_result_comes_in(api: Api) -> None:
    told: list[Any] = []

    def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
        told.append(task_result)

    job_id = tasks.resize.enqueue(1).id
    task_finished.connect(receive)
    try:
        worker = Remote(api)
        [given] = worker.claim()
        worker.finish(given, 5)
        station.end()
    finally:
        task_finished.disconnect(receive)
    [result] = told
    assert (result.id, result.return_value) == (job_id, 5)


def test_when_the_thread_that_tells_has_crashed_another_one_tells(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def tell(attempt: Any, outcome: object) -> None:
        if not told:
            told.append(attempt.id)
            raise MemoryError
        told.append(attempt.id)

    monkeypatch.setattr(announcer, "wants_announcement", lambda outcome: True)
    monkeypatch.setattr(announcer, "announce_finish", tell)
    jobs = [int(tasks.resize.enqueue(number).id) for number in range(2)]
    worker = Remote(api)
    first, second = worker.claim(2)
    worker.finish(first)
    wait_until(lambda: "role=announcer has crashed" in caplog.text)
    worker.finish(second)
    wait_until(lambda: told == jobs)
    # This is a web process: it is no worker, and does not end.
    assert "the worker ends" not in caplog.text


@pytest.mark.parametrize(
    ("report", "detail"),
    [
        ({"result": 1, "release": True}, "expected one of result, error and release"),
        ({"result": 1, "error": {"type": "E"}}, "expected one of result, error and release"),
        ({"release": False}, "expected true"),
    ],
    ids=str,
)
def test_a_report_says_one_thing(api: Api, report: dict[str, Any], detail: str) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    [given] = Remote(api).claim()
    results = [{"assignment": given["assignment"], **report}]
    answer = api.post("results", {"results": results})
    assert problem_of(answer) == "invalid"
    assert [each["detail"] for each in json.loads(answer.content)["errors"]] == [detail]
    assert get_job(job_id).status == "running"


def test_a_row_that_somebody_has_locked_is_said_again_later(
    api: Api, open_connection: Callable[..., psycopg.Connection], monkeypatch: Any
) -> None:
    monkeypatch.setattr(reporting, "PATIENCE_SECONDS", 0.1)
    locked, free = (int(tasks.resize.enqueue(n).id) for n in range(2))
    worker = Remote(api)
    given = worker.claim(2)
    other = open_connection(autocommit=False)
    other.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", [locked])
    results = [{"assignment": each["assignment"], "result": 1} for each in given]
    body = body_of(api.post("results", {"results": results}))
    assert [each["status"] for each in body["results"]] == ["later", "stored"]
    answer = worker.say(given[0], "result", {"result": 1})
    assert (answer.status_code, problem_of(answer)) == (503, "unavailable")
    assert answer["Retry-After"] == "1"
    other.rollback()
    assert worker.finish(given[0], 1) == {"status": "stored"}
    assert {get_job(each).status for each in (locked, free)} == {"successful"}


def test_who_waits_for_a_locked_row_holds_no_connection(
    api: Api,
    open_connection: Callable[..., psycopg.Connection],
    monkeypatch: Any,
    settings: Any,
) -> None:
    settings.PGJOBS = {"HTTP_MAX_CONNECTIONS": 1}
    monkeypatch.setattr(pool, "PATIENCE_SECONDS", 0.0)
    tasks.resize.enqueue(1)
    worker = Remote(api)
    [given] = worker.claim()
    other = open_connection(autocommit=False)
    other.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", [int(given["job"])])
    pauses = []

    def sleep(seconds: float) -> None:
        with pool.borrowed():
            pauses.append(seconds)
        other.rollback()

    monkeypatch.setattr(reporting, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    monkeypatch.setattr(reporting, "PATIENCE_SECONDS", 60.0)
    assert worker.finish(given, 1) == {"status": "stored"}
    assert pauses


def test_an_outcome_that_the_server_refuses_becomes_a_failure(api: Api) -> None:
    refused, other = (int(tasks.resize.enqueue(n).id) for n in range(2))
    worker = Remote(api)
    given = worker.claim(2)
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE pgjobs_job_finished ADD CONSTRAINT sample CHECK (result::text <> '666')"
        )
    try:
        results = [{"assignment": each["assignment"], "result": 666} for each in given]
        results[1]["result"] = 1
        body = body_of(api.post("results", {"results": results}))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE pgjobs_job_finished DROP CONSTRAINT sample")
    assert [each["status"] for each in body["results"]] == ["failed", "stored"]
    assert (get_job(refused).status, get_job(other).status) == ("failed", "successful")


def test_a_result_that_is_too_large_fails_the_job(api: Api, settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "MAX_PAYLOAD_BYTES": 100}
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    assert worker.finish(given, "x" * 200) == {"status": "failed"}
    [error] = get_job(job_id).errors
    assert error["exception_class"] == "django_pgjobs.exceptions.PayloadError"


def test_long_texts_of_an_error_lose_their_middle(api: Api) -> None:
    """A program does not have to know how much is kept."""
    tasks.resize.enqueue(1)
    remote = Remote(api)
    [given] = remote.claim()
    error = {"type": "E", "message": "m" * 20_000, "traceback": f"first{'t' * 200_000}last"}
    assert remote.say(given, "failure", {"error": error}).status_code == 200
    [kept] = Job.objects.get().errors
    assert len(kept["message"]) < 11_000 and "left out" in kept["message"]
    assert kept["traceback"].startswith("first") and kept["traceback"].endswith("last")


def test_connections_that_the_server_has_ended_are_replaced(api: Api) -> None:
    tasks.resize.enqueue(1)
    worker = Remote(api)
    end_sessions()
    [given] = worker.claim()
    end_sessions()
    assert worker.finish(given) == {"status": "stored"}


def end_sessions() -> None:
    """Let the server end the connections of the API."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'pgjobs http' AND datname = current_database()"
        )


def test_what_waits_for_a_remote_job_goes_on(api: Api) -> None:
    job = tasks.resize.enqueue(1)
    behind = int(tasks.resize.using(after=[job]).enqueue(2).id)
    worker = Remote(api)
    [given] = worker.claim(5)
    worker.finish(given)
    assert [each["job"] for each in worker.claim(5)] == [str(behind)]


def test_a_tree_goes_through_a_worker_over_http(api: Api) -> None:
    with workflow("sizes") as flow:
        for number in range(3):
            flow.add(tasks.resize.s(number))
        flow.gather(tasks.convert.s())
    worker = Remote(api)
    given = worker.claim(5)
    assert len({each["batch"] for each in given}) == 1 and given[0]["batch"]
    results = [{"assignment": each["assignment"], "result": each["args"][0] * 10} for each in given]
    api.post("results", {"results": results})
    [last] = worker.claim(5)
    assert last["task"] == tasks.convert.module_path
    assert last["args"] == [[0, 10, 20]]
    worker.finish(last, "done")
    flow.refresh_from_db()
    assert flow.completed_at is not None


def test_a_row_that_lacks_what_its_task_declares_gets_it_first(api: Api) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (task_path, queue_name, args)"
            " SELECT %s, 'node', '[1]' FROM generate_series(1, 3) RETURNING id",
            [tasks.bill.module_path],
        )
        ids = [row[0] for row in cursor.fetchall()]
    worker = Remote(api)
    [given] = worker.claim(5)
    assert int(given["job"]) == ids[0]
    assert get_job(ids[1]).concurrency_key == "shop:1"
    assert worker.claim(5) == []
    worker.finish(given)
    assert [int(each["job"]) for each in worker.claim(5)] == [ids[1]]


def test_what_must_not_begin_is_ended_and_not_given(api: Api) -> None:
    expired = int(tasks.resize.using(expires=timedelta(seconds=0.001)).enqueue(1).id)
    broken = int(tasks.resize.enqueue(1).id)
    good = int(tasks.resize.enqueue(1).id)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job_live SET args = '5' WHERE id = %s", [broken])
        cursor.execute("SELECT pg_sleep(0.01)")
    worker = Remote(api)
    assert [int(each["job"]) for each in worker.claim(5)] == [good]
    assert get_job(expired).status == "cancelled"
    assert get_job(broken).status == "failed"


def test_a_task_that_is_not_known_here_is_left_to_others(api: Api) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (task_path, queue_name) VALUES ('no.such', 'node') RETURNING id"
        )
        [(unknown,)] = cursor.fetchall()
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    given = worker.claim(5)
    assert [int(each["job"]) for each in given] == [job_id]
    job = get_job(unknown)
    assert (job.status, job.attempts) == ("ready", 0)
    assert "no.such" in station.refusals.passed_over_paths()


def test_workers_that_claim_at_once_get_other_jobs(api: Api) -> None:
    ids = {int(tasks.resize.enqueue(n).id) for n in range(40)}
    ids |= {int(tasks.bill.enqueue(n % 5, n).id) for n in range(20)}
    done: list[int] = []

    def work() -> None:
        try:
            worker = Remote(Api(api.secret))
            while given := worker.claim(3):
                results = [{"assignment": each["assignment"]} for each in given]
                body = body_of(worker.api.post("results", {"results": results}))
                assert {each["status"] for each in body["results"]} == {"stored"}
                done.extend(int(each["job"]) for each in given)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # One that found the keys of all others in use has ended before the rest.
    worker = Remote(api)
    while given := worker.claim(3):
        for each in given:
            worker.finish(each)
            done.append(int(each["job"]))
    assert sorted(done) == sorted(ids)


def test_local_jobs_in_the_queue_stay(api: Api) -> None:
    local = int(add.using(queue_name="node", priority=50).enqueue(1, 2).id)
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    assert [int(each["job"]) for each in worker.claim(5)] == [job_id]
    assert get_job(local).claim == 0
