"""Whole trees of batches in one request: what is opened, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from django_pgjobs import workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests.factories import make_token
from tests.helpers import ROOT
from tests.http.receivers import SECRET
from tests.http.support import Api, problem_of
from tests.http.trees import ADD, ECHO, FAIL, errors_of, read, results, sums

DIAMOND: dict[str, Any] = {
    "name": "diamond",
    "metadata": {"month": 5},
    "jobs": sums((1, 1), (2, 2)),
    "parts": [{"name": "bonus", "label": "bonus", "jobs": sums((100, 1))}],
    "followers": [
        {"each": {"task": ADD, "args": [10]}, "label": "left"},
        {"each": {"task": ADD, "kwargs": {"b": 100}}, "label": "right"},
    ],
    "joins": [
        {
            "of": ["left", "right", "bonus"],
            "gather": {"task": ECHO},
            "label": "all",
            "followers": [{"then": {"task": ADD, "args": [5, 5]}, "after_failure": "run"}],
        }
    ],
}


@pytest.mark.slow
def test_a_whole_tree_is_opened_in_one_request(api: Api) -> None:
    """S2.3, S2.10, S2.16, S2.31: jobs, parts, what follows them, and what joins that."""
    opened = read(api.post("workflows", DIAMOND), 201)
    assert (opened["name"], opened["is_new"]) == ("diamond", True)
    assert set(opened["batches"]) == {"bonus", "left", "right", "all"}
    run_jobs()
    [gathered] = Job.objects.filter(batch_id=opened["batches"]["all"])
    assert [sorted(each) for each in gathered.result[0]] == [[12, 14], [102, 104], [101]]
    assert results(api, opened["id"]) == [10]
    status = read(api.get(f"workflows/{opened['id']}/status"))
    assert (status["state"], status["metadata"]) == ("successful", {"month": 5})
    assert status["counts"]["successful"] == 9
    assert [reason["code"] for reason in status["reasons"]] == ["complete"]


def test_nothing_of_a_tree_is_there_if_a_part_is_wrong(api: Api) -> None:
    """All is named at once, by its place."""
    body = {
        "on_failed_job": "explode",
        "jobs": [{"task": ADD, "args": [1]}, {"task": "tests.tasks.nothing"}],
        "parts": [{"name": 5, "seal": "no", "parts": [{"jobs": [{"tusk": ADD}]}]}],
        "followers": [
            {},
            {"each": {"task": ADD, "args": [1]}, "then": {"task": ADD, "args": [1, 2]}},
            {"then": {"task": ADD, "args": [1, 2]}, "skip_none": True},
            {"each": {"task": ADD}, "after_failure": "run"},
        ],
        "joins": [{"of": ["nobody"], "gather": {"task": ECHO}}],
        "callbacks": [{"on": "begin", "call": {"task": ADD}}, {}, {"url": "https://x.example/"}],
        "more": 1,
    }
    found = errors_of(api.post("workflows", body))
    assert set(found) == {
        "/name",
        "/on_failed_job",
        "/jobs/0",
        "/jobs/1/task",
        "/parts/0/name",
        "/parts/0/seal",
        "/parts/0/parts/0/jobs/0/task",
        "/parts/0/parts/0/jobs/0/tusk",
        "/followers/0",
        "/followers/1",
        "/followers/2/skip_none",
        "/followers/3/each",
        "/followers/3/after_failure",
        "/joins/0/of",
        "/callbacks/0/on",
        "/callbacks/0/call",
        "/callbacks/1",
        "/callbacks/2",
        "/more",
    }
    assert not Batch.objects.exists()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"parts": [{"label": "a"}, {"label": "a"}]}, "/parts/1/label"),
        (
            {
                "parts": [
                    {"label": "a", "parts": [{"label": "b"}]},
                ],
                "joins": [{"of": ["b"], "then": {"task": ECHO}}],
            },
            "/joins/0",
        ),
        (
            {"parts": [{"label": "a"}], "joins": [{"of": ["a", "a"], "then": {"task": ECHO}}]},
            "/joins/0",
        ),
        ({"joins": [{"of": [], "then": {"task": ECHO}}]}, "/joins/0"),
        ({"joins": [{"of": ["a"], "label": "a", "then": {"task": ECHO}}]}, "/joins/0/of"),
        (
            {
                "joins": [
                    {"of": ["b"], "label": "a", "then": {"task": ECHO}},
                    {
                        "of": ["a"],
                        "then": {"task": ECHO},
                        "followers": [{"label": "b", "then": {"task": ECHO}}],
                    },
                ]
            },
            "/joins/1/of",
        ),
        ({"jobs": sums(*[(1, 1)] * 1_001)}, "/jobs"),
        ({"parts": [{"jobs": sums(*[(1, 1)] * 501)}] * 2}, ""),
        ({"parts": [{}] * 100}, ""),
    ],
)
def test_a_tree_that_cannot_be_is_refused(api: Api, body: Any, pointer: str) -> None:
    assert pointer in errors_of(api.post("workflows", {"name": "odd", **body}))
    assert not Batch.objects.exists()
    assert not Job.objects.exists()


def test_joins_are_written_in_any_order(api: Api) -> None:
    """A join may name what a later one makes."""
    body = {
        "name": "joins",
        "joins": [
            {"of": ["inner", "b"], "gather": {"task": ECHO}},
            {"of": ["a"], "label": "inner", "gather": {"task": ECHO}},
        ],
        "parts": [
            {"label": "a", "jobs": sums((1, 1))},
            {"label": "b", "jobs": sums((2, 2))},
        ],
    }
    opened = read(api.post("workflows", body), 201)
    run_jobs()
    inner = [[[2]], {}]
    assert results(api, opened["id"]) == [[[[inner], [4]], {}]]


def test_a_request_that_is_sent_again_gets_the_first_workflow(api: Api) -> None:
    """S2.22: who repeats a request with a key of its own does no harm."""
    body = {"name": "payroll", "jobs": sums((1, 2))}
    first = read(api.post("workflows", body, **{"Idempotency-Key": "2026-10"}), 201)
    again = read(api.post("workflows", body, **{"Idempotency-Key": "2026-10"}), 200)
    assert (again["id"], again["is_new"]) == (first["id"], False)
    assert Job.objects.count() == 1
    other = read(api.post("workflows", body, **{"Idempotency-Key": "2026-11"}), 201)
    assert other["id"] != first["id"]


def test_a_key_of_another_token_is_a_conflict_that_tells_nothing(api: Api) -> None:
    """A program must not take what another one opened for its own, with no job of its own in it."""
    own = Api(make_token(tasks=[ADD]))
    key = {"Idempotency-Key": "2026-10"}
    first = read(own.post("workflows", {"name": "payroll"}, **key), 201)["id"]
    answer = api.post("workflows", {"name": "payroll", "jobs": sums((1, 2))}, **key)
    assert (answer.status_code, problem_of(answer)) == (409, "duplicate")
    assert first not in read(answer, 409)["detail"]
    assert read(own.post("workflows", {"name": "payroll"}, **key))["id"] == first


def test_a_key_of_the_project_is_a_conflict(api: Api) -> None:
    with workflow("payroll", dedupe_key="2026-10"):
        pass
    answer = api.post("workflows", {"name": "payroll"}, **{"Idempotency-Key": "2026-10"})
    assert problem_of(answer) == "duplicate"


def test_no_client_says_who_opened_a_workflow(api: Api) -> None:
    body = {"name": "payroll", "metadata": {"pgjobs.token": 1, "month": 10}}
    assert "/metadata" in errors_of(api.post("workflows", body))
    flow = read(api.post("workflows", body | {"metadata": {"month": 10}}), 201)["id"]
    assert read(api.get(f"workflows/{flow}/status"))["metadata"] == {"month": 10}


def test_a_dedupe_key_is_there_once(api: Api) -> None:
    """S2.22: a second insert fails."""
    body = {"name": "payroll", "dedupe_key": "2026-10", "jobs": sums((1, 2))}
    read(api.post("workflows", body), 201)
    answer = api.post("workflows", body)
    assert (answer.status_code, problem_of(answer)) == (409, "duplicate")
    assert Job.objects.count() == 1


def test_a_key_is_given_in_one_place(api: Api) -> None:
    body = {"name": "payroll", "dedupe_key": "a"}
    [error] = read(api.post("workflows", body, **{"Idempotency-Key": "a"}), 422)["errors"]
    assert error["parameter"] == "Idempotency-Key"


def test_a_failed_job_cancels_what_the_tree_says(api: Api) -> None:
    tree = {
        "name": "fragile",
        "on_failed_job": "cancel workflow",
        "jobs": [{"task": FAIL}],
        "parts": [{"jobs": [{"task": ADD, "args": [1, 2], "delay": 3600}]}],
    }
    flow = read(api.post("workflows", tree), 201)["id"]
    run_jobs(at_once=False)
    status = read(api.get(f"workflows/{flow}/status"))
    assert (status["state"], status["counts"]["cancelled"]) == ("failed", 1)


def test_the_tree_on_the_page_is_opened(api: Api, settings: Any) -> None:
    settings.PGJOBS = {"CALLBACK_HOSTS": ["hooks.example.com"], "CALLBACK_SECRET": SECRET}
    page = (ROOT / "docs" / "http-workflows.md").read_text()
    text = re.findall(r"```json\n(.*?)```", page, re.DOTALL)[0]
    body = json.loads(re.sub(r"shop\.tasks\.\w+", ECHO, text))
    opened = read(api.post("workflows", body), 201)
    assert set(opened["batches"]) == {"bonus", "paid"}
    assert Batch.objects.count() == 4
