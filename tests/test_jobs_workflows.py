"""`manage.py jobs workflows show|retry|cancel ID`: what failed of a tree, and changes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from psycopg import sql

from django_pgjobs import workflow
from django_pgjobs.management import one_workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.queries import workflow_pages
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.factories import make_batch, make_job
from tests.test_admin import NOW

pytestmark = pytest.mark.django_db


@pytest.fixture
def run(run: Callable[..., str]) -> Callable[..., str]:
    """Run `jobs workflows` with words of a command line; return what it prints."""
    return partial(run, "workflows")


def fail(batch: int, message: str = "no such order\nreally") -> int:
    """Make a job that failed for good."""
    error = {"exception_class": "shop.errors.Missing", "message": message}
    columns = {"errors": [error], "attempts": 3, "finished_at": NOW}
    return make_job("shop.tasks.pay", status="failed", batch_id=batch, **columns)


def test_the_failed_jobs_of_a_tree_are_below_it(run: Any) -> None:
    root = make_batch("payroll", tree_completed_at=NOW, completed_at=NOW)
    part = make_batch("part", parent_id=root, jobs=2, failed=2)
    first, second = fail(part), fail(part, "\x1b[31mred")
    text = run("show", root).partition("Newest failed jobs:\n")[2]
    head, *lines = text.splitlines()
    assert head.split() == list(one_workflow.OF_FAILED)
    assert [line.split()[:3] for line in lines] == [
        [str(second), "shop.tasks.pay", "3"],
        [str(first), "shop.tasks.pay", "3"],
    ]
    assert lines[0].endswith("shop.errors.Missing  \\x1b[31mred")
    assert lines[1].endswith("shop.errors.Missing  no such order")
    found = json.loads(run("show", root, "--json"))["failed_jobs"]
    assert [job["id"] for job in found] == [second, first]
    assert found[1] == {
        "id": first,
        "task_path": "shop.tasks.pay",
        "attempts": 3,
        "finished_at": found[1]["finished_at"],
        "exception_class": "shop.errors.Missing",
        "message": "no such order",
    }


def test_at_most_ten_are_told(run: Any) -> None:
    root = make_batch(jobs=12, failed=12)
    failed = [fail(root) for _ in range(12)]
    found = json.loads(run("show", root, "--json"))["failed_jobs"]
    assert [job["id"] for job in found] == failed[:1:-1]


def test_where_nothing_failed_nothing_is_told(run: Any) -> None:
    root = make_batch(jobs=1)
    assert "failed jobs" not in run("show", root)
    assert json.loads(run("show", root, "--json"))["failed_jobs"] == []


def test_those_that_are_not_found_in_time_are_told_so(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def list_slowly(cursor: Any, batch_id: int) -> Any:
        cursor.execute("SELECT pg_sleep(10)")

    root = make_batch("payroll", jobs=1, failed=1)
    monkeypatch.setattr(one_workflow, "FAILED_SECONDS", 0.1)
    monkeypatch.setattr(one_workflow, "list_failed", list_slowly)
    text = run("show", root)
    assert "payroll" in text
    assert "The failed jobs could not be found in time." in text
    assert json.loads(run("show", root, "--json"))["failed_jobs"] is None


def test_a_tree_of_many_batches_is_looked_through_where_nothing_failed_in_those_shown(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_pages, "MAX_SUMMED", 2)
    monkeypatch.setattr(one_workflow, "MAX_SUMMED", 2)
    # Not later than what fails in the test's transaction.
    root = make_batch(created_at=sql.SQL("now()"))
    parts = [make_batch(parent_id=root) for _ in range(5)]
    failed = fail(parts[-1])
    assert [job["id"] for job in json.loads(run("show", root, "--json"))["failed_jobs"]] == [failed]


def refusal_of(*words: object) -> str:
    """Return what `jobs workflows` ends with."""
    with pytest.raises(CommandError) as caught:
        call_command("jobs", "workflows", *map(str, words))
    assert caught.value.returncode == 1
    return str(caught.value)


def test_retry_requeues_what_failed_in_a_tree(run: Any) -> None:
    root = make_batch("payroll", tree_completed_at=NOW, completed_at=NOW)
    part = make_batch(parent_id=root, tree_completed_at=NOW, completed_at=NOW)
    failed = fail(part)
    cancelled = make_job("tests.tasks.add", status="cancelled", batch_id=part, finished_at=NOW)
    assert run("retry", root) == f"batch {root}: 1 job requeued\n"
    assert Job.objects.get(pk=failed).status == "ready"
    assert Job.objects.get(pk=cancelled).status == "cancelled"
    assert run("retry", root, "--cancelled") == f"batch {root}: 1 job requeued\n"
    assert Job.objects.get(pk=cancelled).status == "ready"
    refused = f"no job of batch {root} was requeued: none has failed"
    assert refusal_of("retry", root) == f"{refused}. --cancelled requeues cancelled ones, too."
    assert refusal_of("retry", root, "--cancelled") == f"{refused} or was cancelled."


@pytest.mark.slow
def test_cancel_cancels_a_tree_and_retry_takes_it_back(run: Any) -> None:
    with workflow("payroll") as flow:
        flow.batch("part").add(tasks.add.s(1, 1))
    below = Batch.objects.get(parent_id=flow.pk)
    assert run("cancel", flow.pk) == f"batch {flow.pk}: cancelled\n"
    assert Job.objects.get().status == "cancelled"
    assert refusal_of("cancel", flow.pk) == (
        f"batch {flow.pk} is complete, or was cancelled before."
    )
    assert f"batch {flow.pk} above it is cancelled" in refusal_of("retry", below.pk, "--cancelled")
    assert run("retry", flow.pk, "--cancelled") == f"batch {flow.pk}: 1 job requeued\n"
    assert Job.objects.get().status == "ready"


@pytest.mark.parametrize("verb", ["show", "retry", "cancel", "seal"])
def test_a_batch_that_is_not_there_is_told(verb: str) -> None:
    assert refusal_of(verb, 17) == "there is no batch 17."


def test_seal_ends_a_batch_that_its_program_has_left_open(run: Any) -> None:
    with workflow("payroll") as flow:
        part = flow.batch("part")
        part.add(tasks.add.s(1, 1))
    assert "jobs workflows seal" in run("show", part.pk)
    assert run("seal", part.pk) == f"batch {part.pk}: sealed\n"
    run_jobs()
    flow.refresh_from_db()
    assert flow.tree_completed_at is not None
    assert "is not open" in refusal_of("seal", part.pk)


def test_a_retry_that_only_takes_a_cancel_back_says_so(run: Any) -> None:
    with workflow("payroll") as flow:
        flow.add(tasks.add.s(1, 1))
        summary = flow.gather(tasks.seen.s())
    run("cancel", summary.pk)
    summary.refresh_from_db()
    assert summary.cancel_requested_at is not None
    assert "as its cancel was taken back" in run("retry", summary.pk, "--cancelled")
    run_jobs()
    assert Job.objects.filter(status="successful").count() == 2


def test_json_names_batches_and_reasons_as_python_does(run: Any) -> None:
    with workflow("payroll") as flow:
        flow.add(tasks.add.s(1, 1))
        summary = flow.gather(tasks.seen.s())
    told = json.loads(run("show", flow.pk, "--json"))
    names = [(each["name"], each["follows"]) for each in told["batches"]]
    assert names == [("payroll", None), ("seen", "gather")]
    told = json.loads(run("show", summary.pk, "--json"))
    [reason] = (each for each in told["reasons"] if each["code"] == "follows")
    assert (reason["text"].endswith(f": {flow.pk}"), reason["refs"]) == (True, [flow.pk])


def test_json_is_asked_for_before_or_after_the_verb(run: Any) -> None:
    root = make_batch()
    assert json.loads(run("--json", "show", root)) == json.loads(run("show", root, "--json"))
