"""`manage.py jobs list` of finished jobs: in the order of their end, with what went wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from tests.admin.test_failures import make_failed
from tests.factories import ago, make_job
from tests.test_jobs_looks import Terminal, rows_of

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("status", ["failed", "successful", "cancelled"])
def test_finished_jobs_are_listed_by_their_end_which_is_shown(run: Any, status: str) -> None:
    last, first = (make_job(status=status, finished_at=ago(hours * 3_600)) for hours in (1, 2))
    head, *rows = run("list", "--status", status).splitlines()
    assert head.split()[5] == "finished_at"
    assert "enqueued_at" not in head
    assert [row.split()[0] for row in rows] == [str(last), str(first)]
    times = [" ".join(row.split()[5:7]) for row in rows]
    assert times == sorted(times, reverse=True)
    found = json.loads(run("list", "--status", status, "--json"))
    assert [row["id"] for row in found] == [last, first]
    assert found[0]["finished_at"] > found[1]["finished_at"]


def test_failed_jobs_are_listed_with_their_last_error(run: Any) -> None:
    [failed] = make_failed("card: refused\nDETAIL: a: b")
    head, row = run("list", "--status", "failed").splitlines()
    assert head.endswith("  error")
    assert row.endswith("  shop.tasks.pay  Refused: card: refused")
    [found] = json.loads(run("list", "--status", "failed", "--json"))
    assert (found["id"], found["exception_class"]) == (failed, "shop.errors.Refused")
    assert found["message"] == "card: refused\nDETAIL: a: b"
    make_job(status="successful")
    assert "error" not in run("list", "--status", "successful")


@pytest.mark.parametrize("errors", [[], [7], [{"message": None}], [[]]])
def test_whatever_a_failed_job_has_for_its_errors_it_is_listed(run: Any, errors: Any) -> None:
    job_id = make_job(status="failed", errors=errors)
    assert rows_of(run("list", "--status", "failed"))[0][-1] == "tests.tasks.add"
    [found] = json.loads(run("list", "--status", "failed", "--json"))
    assert (found["id"], found["exception_class"], found["message"]) == (job_id, "", "")


def test_a_terminal_gets_as_much_of_an_error_as_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_failed("the card was refused: " + "ask the bank. " * 20)
    monkeypatch.setenv("COLUMNS", "140")
    terminal = Terminal()
    call_command("jobs", "list", "--status", "failed", stdout=terminal)
    line = terminal.getvalue().splitlines()[1]
    assert len(line) == 140
    assert line.endswith("…")


def test_unfinished_jobs_have_no_end(run: Any) -> None:
    job_id = make_job()
    assert "enqueued_at" in run("list").splitlines()[0]
    [found] = json.loads(run("list", "--json"))
    assert (found["id"], found["finished_at"]) == (job_id, None)
    assert "exception_class" not in found
    assert found["enqueued_at"] is not None


def test_the_list_takes_the_filters_of_a_requeue_and_finds_the_same(run: Any) -> None:
    [refused] = make_failed("card: refused", finished_at=ago(600))
    make_failed("no answer", finished_at=ago(600))
    make_failed("card: refused", finished_at=ago(10_800))
    make_job()
    filters = ("--error", "CARD: re", "--since", "2h", "--task", "shop.tasks.pay")
    found = json.loads(run("list", *filters, "--json"))
    assert [row["id"] for row in found] == [refused]
    assert run("requeue", *filters, "--dry-run") == f"would requeue 1 job: {refused}\n"
    assert run("list", *filters).splitlines()[0].endswith("  error")


def test_the_list_of_another_status_is_filtered_by_the_end(run: Any) -> None:
    last, _ = (make_job(status="successful", finished_at=ago(hours * 3_600)) for hours in (1, 3))
    found = json.loads(run("list", "--status", "successful", "--since", "2h", "--json"))
    assert [row["id"] for row in found] == [last]
    assert run("list", "--since", "30m") == "no failed job was found.\n"
