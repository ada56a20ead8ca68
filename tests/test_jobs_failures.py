"""`manage.py jobs failures`: failed jobs by what went wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from tests.admin.test_failures import make_failed
from tests.factories import ago
from tests.test_jobs_looks import Terminal, rows_of

pytestmark = pytest.mark.django_db


def test_failures_are_told_by_task_class_and_message(run: Any) -> None:
    make_failed("order 17 is gone", count=2)
    [newest] = make_failed("order 18 is gone", finished_at=ago(20))
    make_failed("card refused", name="KeyError", finished_at=ago(7_200))
    first, second = rows_of(run("failures"))
    error = "Refused: order 18 is gone"
    assert first[:3] + first[4:] == ["3", "3", "3", str(newest), "shop.tasks.pay", error]
    assert first[3].endswith(" s")
    assert second[:4] == ["1", "0", "1", "2 h"]
    found = json.loads(run("failures", "--json"))
    assert (found[0]["jobs"], found[0]["newest_id"]) == (3, newest)
    assert found[0]["exception_class"] == "shop.errors.Refused"
    assert found[0]["error_message"] == "order * is gone"


def test_the_newest_failures_come_first_if_asked_for(run: Any) -> None:
    make_failed("often", count=3, finished_at=ago(600))
    make_failed("lately", finished_at=ago(5))
    assert [row[-1] for row in rows_of(run("failures"))] == ["Refused: often", "Refused: lately"]
    newest = rows_of(run("failures", "--newest"))
    assert [row[-1] for row in newest] == ["Refused: lately", "Refused: often"]


def test_failures_says_what_it_leaves_out(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(51):
        make_failed("refused", task_path=f"shop.tasks.pay_{number}")
    said = run("failures").splitlines()[-1]
    assert said == "there are 51 groups; the first 50 are shown."
    monkeypatch.setattr("django_pgjobs.management.failures.MAX_JOBS", 2)
    *_, row, said = run("failures").splitlines()
    assert row.endswith("Refused: refused")
    assert said == "only the newest 2 failed jobs were looked at."


def test_a_message_of_many_lines_is_in_one(run: Any) -> None:
    make_failed('syntax error at "x"\nLINE 1: x\n        ^')
    assert run("failures").splitlines()[1].endswith('Refused: syntax error at "x" LINE 1: x ^')


def test_a_terminal_gets_as_much_of_a_line_as_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    make_failed("the card was refused for 17 EUR: " + "ask the bank. " * 9)
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    call_command("jobs", "failures", stdout=terminal)
    line = terminal.getvalue().splitlines()[1]
    assert len(line) == 80
    # All of the path, which `jobs requeue --task` takes.
    assert "  shop.tasks.pay  Refused: the card" in line
    assert line.endswith("…")
