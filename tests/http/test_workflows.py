"""Workflows over HTTP: open batches, results in pages, what a token sees, and their end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_pgjobs import workflow
from django_pgjobs.exceptions import BatchOpen
from django_pgjobs.http.assignments import Assignment
from django_pgjobs.http.removing import remove_workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests.factories import make_token
from tests.http.receivers import SECRET, receiving
from tests.http.support import Api, problem_of
from tests.http.test_trees import DIAMOND
from tests.http.trees import ADD, ECHO, errors_of, read, results, sums
from tests.tasks import add


def test_jobs_are_added_until_it_is_sealed(api: Api) -> None:
    """S2.16, S2.29: streaming in, then sealing."""
    flow = read(api.post("workflows", {"name": "upload", "seal": False}), 201)["id"]
    ids = read(api.post(f"batches/{flow}/jobs", {"jobs": sums((1, 2), (3, 4))}), 201)["jobs"]
    assert [job.args for job in Job.objects.filter(pk__in=ids).order_by("pk")] == [[1, 2], [3, 4]]
    run_jobs()
    status = read(api.get(f"workflows/{flow}/status"))
    assert (status["state"], status["reasons"][0]["code"]) == ("open", "open")
    assert read(api.post(f"batches/{flow}/seal"))["state"] == "successful"
    assert read(api.post(f"batches/{flow}/seal"))["state"] == "successful"
    answer = api.post(f"batches/{flow}/jobs", {"jobs": sums((5, 6))})
    assert (answer.status_code, problem_of(answer)) == (409, "sealed")
    assert results(api, flow) == [3, 7]


def test_a_batch_has_each_key_once(api: Api) -> None:
    flow = read(api.post("workflows", {"name": "upload", "seal": False}), 201)["id"]
    body = {"jobs": sums((1, 2), (3, 4)), "dedupe_key": "sum:{a}"}
    first = read(api.post(f"batches/{flow}/jobs", body), 201)["jobs"]
    assert problem_of(api.post(f"batches/{flow}/jobs", body)) == "duplicate"
    again = read(api.post(f"batches/{flow}/jobs", body | {"on_conflict": "return"}), 201)["jobs"]
    assert again == first
    wrong = {"jobs": sums((5, 6)), "dedupe_key": "{nothing}"}
    assert errors_of(api.post(f"batches/{flow}/jobs", wrong))


def test_a_running_job_adds_to_its_own_batch(api: Api) -> None:
    """Though it is sealed; an assignment says who asks."""
    with workflow("crawl") as flow:
        [job_id] = flow.add(add.s(1, 2))
    job = Job.objects.get(pk=job_id)
    Job.objects.filter(pk=job_id).update(status="running", claim=5)
    token_id = int(read(api.get("token"))["id"])
    body = {"jobs": sums((3, 4))}
    address = f"batches/{flow.pk}/jobs"
    assert problem_of(api.post(address, body)) == "sealed"
    own = Assignment(job.pk, 5, 1, token_id).sealed
    read(api.post(address, body | {"assignment": own}), 201)
    over = Assignment(job.pk, 4, 1, token_id).sealed
    assert problem_of(api.post(address, body | {"assignment": over})) == "sealed"
    others = Assignment(job.pk, 5, 1, token_id + 1).sealed
    assert problem_of(api.post(address, body | {"assignment": others})) == "not-found"


def test_results_come_in_pages(api: Api) -> None:
    """S2.9, S2.27: of what nothing follows, in order."""
    tree = {
        "name": "pages",
        "jobs": sums((0, 1), (0, 2)),
        "parts": [{"jobs": sums(*((number, 0) for number in range(5)))}],
        "followers": [{"each": {"task": ECHO}}],
    }
    flow = read(api.post("workflows", tree), 201)["id"]
    run_jobs()
    found, cursor = [], ""
    while cursor is not None:
        query = f"?limit=2&cursor={cursor}" if cursor else "?limit=2"
        page = read(api.get(f"workflows/{flow}/results{query}"))
        found += [each["result"] for each in page["results"]]
        assert len(page["results"]) <= 2
        cursor = page["cursor"]
    assert found == list(Batch.objects.get(pk=flow).results())
    assert len(found) == 7


@pytest.mark.parametrize("cursor", ["x", "1", "1.", ".1", "1.x", "0.0", "1.2.3"])
def test_a_wrong_cursor_is_named(api: Api, cursor: str) -> None:
    flow = read(api.post("workflows", {"name": "empty"}), 201)["id"]
    [error] = read(api.get(f"workflows/{flow}/results?cursor={cursor}"), 422)["errors"]
    assert error["parameter"] == "cursor"


def test_workflows_are_listed_newest_first(api: Api) -> None:
    ids = [read(api.post("workflows", {"name": name, "seal": False}), 201)["id"] for name in "abca"]
    api.post(f"batches/{ids[0]}/seal")

    def listed(query: str) -> list[str]:
        return [each["id"] for each in read(api.get(f"workflows?{query}"))["workflows"]]

    assert listed("limit=2") == ids[:1:-1]
    assert listed(f"limit=2&cursor={ids[2]}") == ids[1::-1]
    assert listed("name=a") == [ids[3], ids[0]]
    assert listed("name=a&complete=true") == [ids[0]]
    assert listed("name=a&complete=false") == [ids[3]]


def test_a_workflow_is_cancelled_and_deleted_when_nothing_runs(api: Api) -> None:
    """S2.13, S2.28."""
    flow = read(api.post("workflows", {"name": "gone", "jobs": sums((1, 2), (3, 4))}), 201)["id"]
    running = Job.objects.filter(batch_id=flow).first()
    assert running is not None
    shown = read(api.delete(f"workflows/{flow}"), 202)
    assert shown["cancel_requested_at"] is not None
    read(api.delete(f"workflows/{flow}"), 202)
    assert Job.objects.filter(task_path=remove_workflow.module_path).count() == 1
    run_jobs()
    assert problem_of(api.get(f"workflows/{flow}/status")) == "not-found"
    assert not Job.objects.filter(batch_id=flow).exists()


def test_what_still_runs_is_waited_for(api: Api) -> None:
    flow = read(api.post("workflows", {"name": "gone", "jobs": sums((1, 2))}), 201)["id"]
    Job.objects.filter(batch_id=flow).update(status="running", claim=5, worker_id=7)
    read(api.delete(f"workflows/{flow}"), 202)
    run_jobs(at_once=False)
    remover = Job.objects.get(task_path=remove_workflow.module_path)
    assert (remover.status, remover.attempts) == ("ready", 0)
    assert remover.note == "snoozed: something of the workflow still runs"
    assert Batch.objects.filter(pk=flow).exists()


def test_one_that_was_let_run_again_is_left(api: Api) -> None:
    flow = read(api.post("workflows", {"name": "gone", "jobs": sums((1, 2))}), 201)["id"]
    remove_workflow.enqueue(int(flow))
    Job.objects.filter(batch_id=flow).update(status="running", claim=5, worker_id=7)
    run_jobs(at_once=False)
    assert Job.objects.get(task_path=remove_workflow.module_path).status == "successful"
    assert Batch.objects.filter(pk=flow).exists()


def test_one_that_is_gone_needs_nothing_more(api: Api) -> None:
    remove_workflow.enqueue(17)
    run_jobs()
    assert Job.objects.get().status == "successful"


def test_one_that_is_locked_is_deleted_later(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(batch: Batch) -> None:
        raise BatchOpen("jobs of it are locked")

    monkeypatch.setattr(Batch, "delete", refuse)
    flow = read(api.post("workflows", {"name": "locked"}), 201)["id"]
    read(api.delete(f"workflows/{flow}"), 202)
    run_jobs(at_once=False)
    assert Job.objects.get().note == "snoozed: jobs of it are locked"


def test_a_complete_one_is_deleted(api: Api) -> None:
    flow = read(api.post("workflows", {"name": "gone", "jobs": sums((1, 2))}), 201)["id"]
    run_jobs()
    read(api.delete(f"workflows/{flow}"), 202)
    run_jobs()
    assert not Batch.objects.exists()


def test_a_batch_of_a_workflow_is_not_deleted_by_itself(api: Api) -> None:
    tree = {"name": "whole", "parts": [{"label": "part"}]}
    part = read(api.post("workflows", tree), 201)["batches"]["part"]
    assert problem_of(api.delete(f"workflows/{part}")) == "not-found"
    assert read(api.get(f"workflows/{part}/status"))["parent"] is not None


def test_a_token_is_for_all_of_a_tree(api: Api) -> None:
    own = Api(make_token(queues=["default"], tasks=[ADD]))
    for tree in (
        {"jobs": [{"task": ECHO}]},
        {"parts": [{"jobs": [{"task": ADD, "args": [1, 2], "queue": "slow"}]}]},
        {"followers": [{"each": {"task": ECHO}}]},
        {"callbacks": [{"call": {"task": ECHO}}]},
    ):
        answer = own.post("workflows", {"name": "not mine", **tree})
        assert problem_of(answer) == "forbidden"
    flow = read(api.post("workflows", DIAMOND | {"seal": False}), 201)["id"]
    assert problem_of(own.delete(f"workflows/{flow}")) == "forbidden"
    assert problem_of(own.post(f"batches/{flow}/seal")) == "forbidden"
    mine = read(own.post("workflows", {"name": "mine", "jobs": sums((1, 2))}), 201)["id"]
    read(own.post(f"batches/{mine}/seal"))
    run_jobs()
    assert results(own, mine) == [3]
    read(own.delete(f"workflows/{mine}"), 202)


def test_a_token_gets_the_results_that_it_is_for(api: Api) -> None:
    tree = {"name": "both", "jobs": [*sums((1, 2)), {"task": ECHO, "args": ["secret"]}]}
    flow = read(api.post("workflows", tree), 201)["id"]
    run_jobs()
    assert results(Api(make_token(tasks=[ADD])), flow) == [3]
    assert len(results(api, flow)) == 2


@pytest.mark.parametrize(
    ("verb", "method", "address"),
    [
        ("read", "POST", "workflows"),
        ("read", "DELETE", "workflows/1"),
        ("enqueue", "DELETE", "workflows/1"),
        ("enqueue", "GET", "workflows"),
        ("enqueue", "GET", "workflows/1/status"),
        ("enqueue", "GET", "workflows/1/results"),
        ("read", "POST", "batches/1/jobs"),
        ("read", "POST", "batches/1/seal"),
    ],
)
def test_a_verb_is_for_some_of_it(api: Api, verb: str, method: str, address: str) -> None:
    answer = Api(make_token(verbs=[verb])).send(method, address)
    assert problem_of(answer) == "forbidden"


@pytest.mark.parametrize(
    ("method", "address", "body"),
    [
        ("GET", "workflows/17/status", None),
        ("GET", "workflows/17/results", None),
        ("DELETE", "workflows/17", None),
        ("POST", "batches/17/jobs", {"jobs": sums((1, 2))}),
        ("POST", "batches/17/jobs", {"jobs": []}),
        ("POST", "batches/17/seal", {}),
    ],
)
def test_what_is_not_there_is_not_found(api: Api, method: str, address: str, body: Any) -> None:
    assert problem_of(api.send(method, address, body)) == "not-found"


def test_the_end_is_told_to_addresses_and_tasks(api: Api, settings: Any) -> None:
    """S2.1, S2.28: who is called back asks for the results, and deletes the workflow."""
    with receiving() as receiver:
        settings.PGJOBS = {
            "CALLBACK_HOSTS": [receiver.url],
            "CALLBACK_SECRET": SECRET,
            "CALLBACK_ALLOW_PRIVATE": True,
        }
        callbacks = [
            {"url": receiver.url},
            {"on": "failure", "url": receiver.url},
            {"on": "success", "call": {"task": ADD, "args": [0], "queue": "told"}},
        ]
        part = {"jobs": sums((1, 2)), "callbacks": [{"url": f"{receiver.url}/part"}]}
        tree = {"name": "told", "parts": [part], "callbacks": callbacks}
        flow = read(api.post("workflows", tree), 201)["id"]
        run_jobs()
        assert sorted(path for path, _, _ in receiver.got) == ["/", "/part"]
    told = {json.loads(body)["batch"]["id"] for _, _, body in receiver.got}
    assert flow in told
    assert Job.objects.get(queue_name="told").result == int(flow)


def test_a_narrow_token_does_not_see_dedupe_keys(api: Api) -> None:
    """Who knows the next one could take it."""
    read(api.post("workflows", {"name": "payroll", "dedupe_key": "2026-10"}), 201)
    for token, seen in ((api, "2026-10"), (Api(make_token(tasks=[ADD])), None)):
        [flow] = read(token.get("workflows"))["workflows"]
        assert flow["dedupe_key"] == seen
        status = read(token.get(f"workflows/{flow['id']}/status"))
        assert status["dedupe_key"] == seen


def test_a_key_leads_to_no_job_that_the_token_is_not_for(api: Api) -> None:
    flow = read(api.post("workflows", {"name": "up", "seal": False}), 201)["id"]
    once = {"dedupe_key": "order:7", "on_conflict": "return"}
    echo = {"jobs": [{"task": ECHO, "args": [7]}], **once}
    [first] = read(api.post(f"batches/{flow}/jobs", echo), 201)["jobs"]
    own = Api(make_token(tasks=[ADD]))
    answer = own.post(f"batches/{flow}/jobs", {"jobs": sums((1, 2)), **once})
    assert problem_of(answer) == "duplicate"
    assert first not in read(answer, 409)["detail"].split("'")[0]
    assert Job.objects.count() == 1
    assert read(api.post(f"batches/{flow}/jobs", echo), 201)["jobs"] == [first]
    mine = {"jobs": sums((1, 2)), "dedupe_key": "order:8", "on_conflict": "return"}
    ids = read(own.post(f"batches/{flow}/jobs", mine), 201)
    assert read(own.post(f"batches/{flow}/jobs", mine), 201) == ids


@pytest.mark.parametrize(
    ("method", "address"), [("POST", "batches/{}/seal"), ("DELETE", "workflows/{}")]
)
def test_an_empty_workflow_is_of_the_token_that_opened_it(
    api: Api, method: str, address: str
) -> None:
    own = Api(make_token(tasks=[ADD]))
    whole = read(api.post("workflows", {"name": "empty", "seal": False}), 201)["id"]
    assert problem_of(own.send(method, address.format(whole))) == "forbidden"
    assert read(api.get(f"workflows/{whole}/status"))["state"] == "open"
    # Nor may it make it its own by a job that it adds.
    jobs = {"jobs": [{"task": ADD, "args": [1, 2]}]}
    assert problem_of(own.post(f"batches/{whole}/jobs", jobs)) == "forbidden"
    mine = read(own.post("workflows", {"name": "empty", "seal": False}), 201)["id"]
    assert own.send(method, address.format(mine)).status_code in (200, 202)
    assert api.send(method, address.format(whole)).status_code in (200, 202)


def test_who_may_use_all_that_is_in_a_workflow_adds_to_it(api: Api) -> None:
    own = Api(make_token(tasks=[ADD]))
    jobs = {"jobs": [{"task": ADD, "args": [1, 2]}]}
    flow = read(api.post("workflows", {"name": "n", "seal": False, **jobs}), 201)["id"]
    read(own.post(f"batches/{flow}/jobs", jobs), 201)
    mine = read(own.post("workflows", {"name": "m", "seal": False}), 201)["id"]
    read(own.post(f"batches/{mine}/jobs", jobs), 201)
