"""Jobs over HTTP: who may enqueue, see and cancel them, and what is wrong with a body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from django_pgjobs import task
from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from tests.factories import make_job, make_running_job, make_token, make_worker
from tests.http.receivers import SECRET, Receiver, receiving
from tests.http.support import Api, problem_of
from tests.http.trees import ADD, errors_of, read
from tests.tasks import add, echo, fail_once


@task(unique_key="one:{number}", on_conflict="raise")
def once(number: int) -> None:
    """Be there once."""


def only_job() -> Job:
    """Return the job that is there."""
    return Job.objects.get()


def test_a_job_is_enqueued(api: Api) -> None:
    answer = api.post("jobs", {"task": ADD, "args": [1], "kwargs": {"b": 2}})
    shown = read(answer, 201)
    job = only_job()
    assert (job.args, job.kwargs, str(job.pk)) == ([1], {"b": 2}, shown["id"])
    assert (shown["task"], shown["queue"], shown["status"]) == (ADD, "default", "ready")
    assert answer["Location"] == f"jobs/{job.pk}"
    run_jobs()
    whole = read(api.get(answer["Location"]))
    assert (whole["status"], whole["result"], whole["args"]) == ("successful", 3, [1])


def test_it_has_the_options_that_a_client_gives(api: Api) -> None:
    first = read(api.post("jobs", {"task": ADD, "args": [1, 2]}), 201)
    options = {
        "queue": "slow",
        "priority": 7,
        "max_attempts": 3,
        "timeout": 5.5,
        "correlation_id": "order-17",
        "tags": ["a", "b"],
        "metadata": {"a": [1]},
        "run_after": "2031-05-01T09:30:00+02:00",
        "expires_in": 60,
        "after": [first["id"]],
        "after_failure": "run",
    }
    shown = read(api.post("jobs", {"task": ADD, "args": [1, 2], **options}), 201)
    assert (shown["queue"], shown["priority"], shown["tags"]) == ("slow", 7, ["a", "b"])
    assert shown["run_after"] == "2031-05-01T07:30:00Z"
    whole = read(api.get(f"jobs/{shown['id']}"))
    assert (whole["timeout"], whole["metadata"]) == (5.5, {"a": [1]})
    assert whole["expires_at"] == "2031-05-01T07:31:00Z"
    job = Job.objects.get(pk=shown["id"])
    assert (job.max_attempts, job.correlation_id, job.waits_for) == (3, "order-17", 1)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/task"),
        ({"task": 5}, "/task"),
        ({"task": "tests.tasks.nothing"}, "/task"),
        ({"task": "os.system", "args": ["id"]}, "/task"),
        ({"task": "django_pgjobs.bulk.job.run_bulk_change", "args": [1]}, "/task"),
        ({"task": "django_pgjobs.http.removing.remove_workflow", "args": [1]}, "/task"),
        ({"task": ADD}, ""),
        ({"task": ADD, "args": [1, 2, 3]}, ""),
        ({"task": ADD, "args": [1, 2], "kwargs": {"c": 1}}, ""),
        ({"task": ADD, "args": {"a": 1}}, "/args"),
        ({"task": ADD, "args": [1, 2], "kwargs": []}, "/kwargs"),
        ({"task": ADD, "args": ["x" * 300_000, 2]}, ""),
        ({"task": ADD, "args": [1, 2], "priority": 101}, "/priority"),
        ({"task": ADD, "args": [1, 2], "priority": 0.5}, "/priority"),
        ({"task": ADD, "args": [1, 2], "queue": ""}, "/queue"),
        ({"task": ADD, "args": [1, 2], "queue": "ü" * 100}, ""),
        ({"task": ADD, "args": [1, 2], "delay": -1}, "/delay"),
        ({"task": ADD, "args": [1, 2], "run_after": "tomorrow"}, "/run_after"),
        ({"task": ADD, "args": [1, 2], "run_after": "2031-05-01T09:30:00"}, "/run_after"),
        (
            {"task": ADD, "args": [1, 2], "run_after": "2031-05-01T09:30:00Z", "delay": 5},
            "/delay",
        ),
        ({"task": ADD, "args": [1, 2], "tags": ["a", 5]}, "/tags/1"),
        ({"task": ADD, "args": [1, 2], "metadata": {"x": "y" * 300_000}}, ""),
        ({"task": ADD, "args": [1, 2], "after": ["x"]}, ""),
        ({"task": ADD, "args": [1, 2], "after": ["17"]}, ""),
        ({"task": ADD, "args": [1, 2], "after_failure": "jump"}, "/after_failure"),
        ({"task": ADD, "args": [1, 2], "unknown": 1}, "/unknown"),
        ({"task": ADD, "args": [1, 2], "callbacks": [{}]}, "/callbacks/0/url"),
        ({"task": ADD, "args": [1, 2], "callbacks": [{"url": "https://x/"}]}, "/callbacks/0"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_enqueued(api: Api, body: Any, pointer: str) -> None:
    assert pointer in errors_of(api.post("jobs", body))
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("field", "low"), [("delay", "0"), ("expires_in", "0"), ("timeout", "0.001")]
)
def test_a_length_of_time_is_said_to_be_in_seconds(api: Api, field: str, low: str) -> None:
    said = errors_of(api.post("jobs", {"task": ADD, "args": [1, 2], field: "5m"}))
    assert said[f"/{field}"].startswith(f"expected a number of seconds from {low} to ")


@pytest.mark.parametrize(("args", "wrong"), [([1], {"/kwargs"}), ("1", {"/args", "/kwargs"})])
def test_arguments_of_a_wrong_type_are_not_called_missing(
    api: Api, args: Any, wrong: set[str]
) -> None:
    answer = api.post("jobs", {"task": ADD, "args": args, "kwargs": [2]})
    assert errors_of(answer).keys() == wrong


def test_what_a_token_is_not_for_is_refused(api: Api) -> None:
    own = Api(make_token(queues=["default"], tasks=[ADD]))
    assert own.post("jobs", {"task": ADD, "args": [1, 2]}).status_code == 201
    for body in (
        {"task": ADD, "args": [1, 2], "queue": "slow"},
        {"task": echo.module_path},
        {"task": "tests.tasks.nothing"},
    ):
        answer = own.post("jobs", body)
        assert (answer.status_code, problem_of(answer)) == (403, "forbidden")
    assert Job.objects.count() == 1


def test_a_token_waits_for_no_job_that_it_is_not_for(api: Api) -> None:
    """That would tell whether there is one, and how it ended."""
    own = Api(make_token(queues=["default"], tasks=[ADD]))
    mine, other = make_job(ADD, args=[1, 2]), make_job(echo.module_path)
    body = {"task": ADD, "args": [1, 2]}
    missing = errors_of(own.post("jobs", body | {"after": [str(other + 1_000)]}))
    found = errors_of(own.post("jobs", body | {"after": [str(mine), str(other)]}))
    [said], [told] = missing.values(), found.values()
    assert (list(missing), said.replace(str(other + 1_000), "")) == (
        list(found),
        told.replace(str(other), ""),
    )
    assert own.post("jobs", body | {"after": [str(mine)]}).status_code == 201
    assert api.post("jobs", body | {"after": [str(other)]}).status_code == 201


def test_a_note_names_no_job_that_a_token_is_not_for(api: Api) -> None:
    other = fail_once.using(queue_name="slow").enqueue()
    job_id = add.using(after=[other]).enqueue(1, 1).id
    run_jobs()
    own = Api(make_token(queues=["default"], tasks=[ADD]))
    notes = [read(each.get(f"jobs/{job_id}"))["note"] for each in (api, own)]
    assert notes == [
        f"cancelled: job {other.id}, which it waited for, failed",
        "cancelled: a job which it waited for failed",
    ]


def test_a_token_sees_the_jobs_that_it_is_for(api: Api) -> None:
    mine = make_job(ADD, args=[1, 2])
    others = [make_job(ADD, queue_name="slow"), make_job(echo.module_path)]
    own = Api(make_token(queues=["default"], tasks=[ADD]))
    assert [job["id"] for job in read(own.get("jobs"))["jobs"]] == [str(mine)]
    for job_id in others:
        assert problem_of(own.get(f"jobs/{job_id}")) == "not-found"
        assert problem_of(own.delete(f"jobs/{job_id}")) == "not-found"
    assert not Job.objects.exclude(status="ready").exists()


@pytest.mark.parametrize(
    ("verb", "method", "address"),
    [
        ("read", "POST", "jobs"),
        ("enqueue", "GET", "jobs"),
        ("enqueue", "GET", "jobs/1"),
        ("enqueue", "DELETE", "jobs/1"),
    ],
)
def test_a_verb_is_for_some_of_it(api: Api, verb: str, method: str, address: str) -> None:
    answer = Api(make_token(verbs=[verb])).send(method, address)
    assert problem_of(answer) == "forbidden"


def test_a_unique_job_that_is_there_is_a_conflict(api: Api) -> None:
    body = {"task": once.module_path, "args": [5]}
    assert api.post("jobs", body).status_code == 201
    answer = api.post("jobs", body)
    assert (answer.status_code, problem_of(answer)) == (409, "duplicate")


def test_jobs_are_listed_in_pages_newest_first(api: Api) -> None:
    ids = [str(make_job(ADD, args=[1, number])) for number in range(5)]
    first = read(api.get("jobs?limit=2"))
    assert [job["id"] for job in first["jobs"]] == ids[:2:-1]
    second = read(api.get(f"jobs?limit=3&cursor={first['cursor']}"))
    assert [job["id"] for job in second["jobs"]] == ids[2::-1]
    assert second["cursor"] is None
    assert "args" not in second["jobs"][0]


def test_lists_are_filtered(api: Api) -> None:
    make_job(ADD, queue_name="slow")
    failed = str(make_job(fail_once.module_path))
    run_jobs()

    def listed(query: str) -> list[str]:
        return [job["id"] for job in read(api.get(f"jobs?{query}"))["jobs"]]

    assert failed in listed("status=failed")
    assert listed(f"task={fail_once.module_path}") == [failed]
    assert failed not in listed("queue=slow")
    assert listed("status=running") == []
    assert listed("batch=17") == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "cursor=0", "cursor=x", "status=odd", "batch=-1"]
)
def test_a_wrong_parameter_is_named(api: Api, query: str) -> None:
    [error] = read(api.get(f"jobs?{query}"), 422)["errors"]
    assert error["parameter"] == query.partition("=")[0]


def test_secrets_are_masked_and_errors_told(api: Api) -> None:
    job_id = make_job(echo.module_path, kwargs={"password": "1234", "n": 1})
    failed = fail_once.enqueue("no luck")
    run_jobs()
    assert read(api.get(f"jobs/{job_id}"))["kwargs"] == {"password": "••••••", "n": 1}
    shown = read(api.get(f"jobs/{failed.id}"))
    assert shown["error"] == {"type": "tests.tasks.Mishap", "message": "no luck"}


def test_a_job_that_waits_is_cancelled(api: Api) -> None:
    job_id = make_job(ADD)
    assert read(api.delete(f"jobs/{job_id}"), 202)["status"] == "cancelled"
    assert read(api.delete(f"jobs/{job_id}"), 202)["status"] == "cancelled"


def test_a_job_that_runs_is_asked_to_end(api: Api) -> None:
    job = make_running_job(make_worker())
    shown = read(api.delete(f"jobs/{job.id}"), 202)
    assert shown["status"] == "running"
    assert shown["cancel_requested_at"] is not None


def test_what_is_not_there_is_not_found(api: Api) -> None:
    assert problem_of(api.get("jobs/17")) == "not-found"
    assert problem_of(api.delete("jobs/17")) == "not-found"
    assert problem_of(api.get("jobs/99999999999999999999")) == "not-found"


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    """A server that callbacks may go to."""
    with receiving() as found:
        settings.PGJOBS = {
            "CALLBACK_HOSTS": [found.url],
            "CALLBACK_SECRET": SECRET,
            "CALLBACK_ALLOW_PRIVATE": True,
        }
        yield found


def test_who_enqueues_is_called_at_the_end(api: Api, receiver: Receiver) -> None:
    """S2.1."""
    callbacks = [
        {"url": f"{receiver.url}/ended"},
        {"on": "failure", "url": f"{receiver.url}/failed"},
        {"on": "success", "url": f"{receiver.url}/succeeded"},
    ]
    body = {"task": fail_once.module_path, "callbacks": callbacks}
    read(api.post("jobs", body), 201)
    run_jobs()
    assert sorted(path for path, _, _ in receiver.got) == ["/ended", "/failed"]
