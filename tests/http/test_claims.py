"""A worker over HTTP enters, claims, and says what became of its jobs."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.http.access import known_tokens
from django_pgjobs.http.members import recent_members
from django_pgjobs.models import Token
from tests.factories import get_job, get_worker, make_token
from tests.http import tasks
from tests.http.support import Api, problem_of
from tests.http.trees import errors_of
from tests.http.workers import Remote, body_of


def test_a_job_is_claimed_and_its_result_is_stored(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(3, height=4).id)
    worker = Remote(api)
    [given] = worker.claim()
    assert given["job"] == str(job_id)
    assert (given["task"], given["queue"]) == (tasks.resize.module_path, "node")
    assert (given["args"], given["kwargs"]) == ([3], {"height": 4})
    assert (given["attempt"], given["max_attempts"]) == (1, 25)
    assert given["timeout"] is None and given["batch"] is None
    assert worker.finish(given, {"area": 12}) == {"status": "stored"}
    job = get_job(job_id)
    assert (job.status, job.result, job.worker_ids) == ("successful", {"area": 12}, ["node"])
    assert worker.claim() == []


def test_s2_19_an_assignment_is_over_with_its_first_outcome(api: Api) -> None:
    tasks.resize.enqueue(3)
    worker = Remote(api)
    [given] = worker.claim()
    worker.finish(given, 1)
    for what, body in (
        ("result", {"result": 2}),
        ("failure", {"error": {"type": "E"}}),
        ("release", {}),
        ("progress", {"progress": {"done": 1}}),
    ):
        answer = worker.say(given, what, body)
        assert (answer.status_code, problem_of(answer)) == (409, "lost")
    assert get_job(int(given["job"])).result == 1
    beat = body_of(worker.say(given, "heartbeat"))
    assert beat["cancel"] == "lost"


def test_s2_19_forged_and_foreign_assignments_are_not_there(api: Api) -> None:
    """S2.19."""
    tasks.resize.enqueue(3)
    worker = Remote(api)
    [given] = worker.claim()
    forged = dict(given, assignment=given["assignment"][:-1] + "~")
    answer = worker.say(forged, "result", {"result": 1})
    assert (answer.status_code, problem_of(answer)) == (404, "not-found")
    worker.api = Api(make_token(name="another"))
    answer = worker.say(given, "result", {"result": 1})
    assert (answer.status_code, problem_of(answer)) == (404, "not-found")
    assert problem_of(worker.post("claim")) == "worker-gone"
    many = body_of(worker.api.post("results", {"results": [{"assignment": given["assignment"]}]}))
    assert [each["status"] for each in many["results"]] == ["lost"]
    assert get_job(int(given["job"])).status == "running"


def test_many_results_in_one_request(api: Api) -> None:
    ids = [int(tasks.convert.enqueue(str(n)).id) for n in range(5)]
    worker = Remote(api)
    given = worker.claim(10)
    assert [int(each["job"]) for each in given] == ids
    names = [each["assignment"] for each in given]
    results: list[dict[str, Any]] = [
        {"assignment": names[0], "result": 7},
        {"assignment": names[1]},
        {"assignment": names[2], "error": {"type": "TypeError", "message": "no"}},
        {"assignment": names[3], "error": {"type": "TypeError"}, "retry": False},
        {"assignment": names[4], "release": True},
        {"assignment": names[0], "result": "again"},
    ]
    body = body_of(api.post("results", {"results": results}))
    said = [each["status"] for each in body["results"]]
    assert said == ["stored", "stored", "retry", "failed", "released", "lost"]
    assert [each["assignment"] for each in body["results"]] == [*names, names[0]]
    statuses = [get_job(job_id).status for job_id in ids]
    assert statuses == ["successful", "successful", "ready", "failed", "ready"]
    [error] = get_job(ids[3]).errors
    assert (error["exception_class"], error["message"], error["attempt"]) == ("TypeError", "", 1)
    assert get_job(ids[4]).attempts == 0


def test_a_failure_is_retried_as_the_task_says(api: Api) -> None:
    job_id = int(tasks.convert.enqueue().id)
    worker = Remote(api)
    said = []
    for _ in range(3):
        [given] = worker.claim()
        error = {"type": "TypeError", "message": "no", "traceback": "at line 1"}
        said.append(body_of(worker.say(given, "failure", {"error": error})))
    assert [each["status"] for each in said] == ["retry", "retry", "failed"]
    assert "due_at" in said[0]
    job = get_job(job_id)
    assert (job.status, job.attempts) == ("failed", 3)
    assert job.errors[0]["traceback"] == "at line 1"
    assert job.errors[0]["worker"] == "node"


def test_the_worker_may_decide_about_the_retry(api: Api) -> None:
    first, second, third = (int(tasks.convert.enqueue(str(n)).id) for n in range(3))
    worker = Remote(api)
    for body, status in (
        ({"retry": False}, "failed"),
        ({"retry_after": 3600}, "retry"),
        ({"retry": True}, "retry"),
    ):
        [given] = worker.claim()
        answer = worker.say(given, "failure", {"error": {"type": "E"}, **body})
        assert body_of(answer)["status"] == status
    assert get_job(first).status == "failed"
    job = get_job(second)
    assert timedelta(minutes=59) < job.due_at - job.last_attempted_at < timedelta(minutes=61)
    assert get_job(third).note == "retry after E"


def test_a_job_is_released_for_later_and_does_not_count(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    body = body_of(worker.say(given, "release", {"delay": 60, "note": "no disk"}))
    assert body == {"status": "released"}
    job = get_job(job_id)
    assert (job.status, job.attempts, job.note) == ("ready", 0, "snoozed: no disk")
    assert job.due_at is not None


def test_a_worker_is_told_that_lengths_of_time_are_in_seconds(api: Api) -> None:
    tasks.resize.enqueue(1)
    worker = Remote(api)
    [given] = worker.claim()
    error = {"error": {"type": "E"}}
    for route, body, field in (
        ("release", {"delay": "5m"}, "/delay"),
        ("failure", {**error, "retry_after": "5m"}, "/retry_after"),
    ):
        said = errors_of(worker.say(given, route, body))
        assert said[field].startswith("expected a number of seconds from 0 to ")


def test_only_remote_tasks_of_token_and_worker_are_given(api: Api) -> None:
    from tests.tasks import add

    tasks.resize.enqueue(1)
    convert = int(tasks.convert.enqueue().id)
    other = int(tasks.other.enqueue().id)
    add.using(queue_name="node").enqueue(1, 2)
    worker = Remote(api, tasks=[tasks.convert.module_path, tasks.other.module_path])
    given = worker.claim(10)
    assert {int(each["job"]) for each in given} == {convert, other}
    narrow = Remote(Api(make_token(name="narrow", queues=["python"])))
    assert narrow.claim(10) == []
    assert get_worker(narrow.id).queues == ["python"]


@pytest.mark.parametrize("what", ["tasks", "queues"])
def test_a_worker_cannot_be_for_more_than_its_token(api: Api, what: str) -> None:
    token = make_token(name="narrow", queues=["python"], tasks=[tasks.other.module_path])
    named = {"tasks": [tasks.resize.module_path], "queues": ["node"]}[what]
    answer = Api(token).post("workers", {"name": "n", what: named})
    assert (answer.status_code, problem_of(answer)) == (403, "forbidden")


def test_what_is_no_remote_task_cannot_be_named(api: Api) -> None:
    answer = api.post("workers", {"name": "n", "tasks": ["tests.tasks.add"]})
    assert (answer.status_code, problem_of(answer)) == (422, "invalid")


def test_a_claim_whose_answer_was_lost_gives_the_same_again(api: Api) -> None:
    ids = {int(tasks.resize.enqueue(n).id) for n in range(3)}
    worker = Remote(api)
    lost = worker.claim(2)
    [third] = worker.claim(2)
    again = worker.claim(5, held=[third["assignment"]])
    assert [each["assignment"] for each in again] == [each["assignment"] for each in lost]
    assert {int(each["job"]) for each in [*again, third]} == ids
    held = [each["assignment"] for each in [*lost, third]]
    assert worker.claim(5, held=held) == []
    assert worker.claim(5) == []


def test_what_a_token_is_not_for_any_more_is_not_given_again(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(Api(make_token("narrowed")))
    worker.claim()
    Token.objects.filter(name="narrowed").update(queues=["other"])
    known_tokens.forget()
    recent_members.forget()
    assert worker.claim(held=[]) == []
    assert get_job(job_id).status == "ready"


ODD_ARGUMENTS = ["args = '[1e400]'", """kwargs = '{"height": -1e400}'"""]
ODD_METADATA = [
    "'5'",
    """'{"a": 1e400}'""",
    """('{"a":' || repeat('9', 5000) || '}')::json""",
    """('{"a":' || repeat('[', 3000) || repeat(']', 3000) || '}')::json""",
]


@pytest.mark.parametrize(
    ("change", "is_given"),
    [
        *((each, False) for each in ODD_ARGUMENTS),
        *((f"metadata = {e}", True) for e in ODD_METADATA),
    ],
    ids=lambda value: str(value)[:25],
)
def test_a_row_that_json_cannot_hold_keeps_nobody_from_other_jobs(
    api: Api, change: str, is_given: bool
) -> None:
    """Else each claim by its worker would get no answer, or one that nobody can read."""
    odd, good = (int(tasks.resize.enqueue(number).id) for number in range(2))
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE pgjobs_job SET {change} WHERE id = {odd}")
    answer = Remote(api).post("claim", {"max_jobs": 2})
    given = json.loads(answer.content, parse_constant=pytest.fail)["assignments"]
    assert {int(each["job"]) for each in given} == ({odd, good} if is_given else {good})
    assert all(each["metadata"] == {} for each in given)
    told = json.loads(api.get(f"jobs/{odd}").content, parse_constant=pytest.fail)
    assert told["status"] == ("running" if is_given else "failed")


def test_goodbye_gives_back_what_runs(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    assert api.delete(f"workers/{worker.id}").status_code == 204
    job = get_job(job_id)
    assert (job.status, job.attempts, job.note) == ("ready", 0, "released at shutdown")
    assert problem_of(worker.post("claim")) == "worker-gone"
    assert problem_of(worker.say(given, "result", {"result": 1})) == "lost"
    assert get_worker(worker.id).ended_at is not None
