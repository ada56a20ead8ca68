"""Options that name other code by a dotted path: wrong ones are told of before an enqueue."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.core import checks as django_checks

from django_pgjobs import checks, task
from django_pgjobs.compat import TASKS_PACKAGE
from django_pgjobs.declaring import registry
from tests.worker.test_on_failure import charge, take_nothing, tell

DUMMY = f"{TASKS_PACKAGE}.backends.dummy.DummyBackend"


def work() -> None:
    """Do nothing."""


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Declare a task `shop_eyes.work`, with options, for one test."""
    module = ModuleType("shop_eyes")
    monkeypatch.setitem(sys.modules, "shop_eyes", module)
    monkeypatch.setattr(work, "__module__", "shop_eyes")

    def make(**options: Any) -> None:
        module.work = task(**options)(work)  # type: ignore[attr-defined]

    yield make
    registry._found.pop("shop_eyes.work", None)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"on_failure": take_nothing.module_path},
            (
                f"shop_eyes.work option on_failure='{take_nothing.module_path}': expected "
                "on_failure to be a task that takes a job's id and a text: "
            ),
        ),
        (
            {"on_failure": f"{__name__}.nothing"},
            (f"option on_failure='{__name__}.nothing': the module {__name__} has no 'nothing'."),
        ),
        (
            {"on_failure": "tests.nowhere.tell"},
            (
                "option on_failure='tests.nowhere.tell': tests.nowhere cannot be imported: "
                "ModuleNotFoundError: No module named 'tests.nowhere'."
            ),
        ),
        (
            {"unique_key": "a", "on_conflict": "merge", "merge": f"{__name__}.nothing"},
            f"shop_eyes.work option merge='{__name__}.nothing': TypeError: ",
        ),
    ],
)
def test_the_check_names_the_task_and_the_option(
    declare: Any, options: dict[str, Any], said: str
) -> None:
    declare(**options)
    [error] = checks.check_references_of_tasks()
    assert (error.id, error.level) == ("pgjobs.E006", django_checks.ERROR)
    assert "shop_eyes.work" in error.msg and said in error.msg
    assert error.msg.endswith(". None of its jobs can be enqueued.")


def test_a_follow_up_of_another_backend_is_told_of(declare: Any, settings: Any) -> None:
    settings.TASKS = {**settings.TASKS, "dummy": {"BACKEND": DUMMY, "QUEUES": []}}
    declare(on_failure=tell.using(backend="dummy"))
    [error] = checks.check_references_of_tasks()
    assert "whose backend is 'dummy'. None of its jobs" in error.msg


def test_what_leads_to_a_task_is_no_problem(declare: Any) -> None:
    declare(on_failure=tell.module_path)
    assert checks.check_references_of_tasks() == []


def test_a_module_that_is_broken_has_its_own_message(
    declare: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.discover_tasks_once()  # not by the check, which would forget it
    broken = registry.BrokenModule("no_such_shop", ValueError("x"))
    monkeypatch.setitem(registry._broken, "no_such_shop", broken)
    declare(on_failure="no_such_shop.tell")
    assert checks.check_references_of_tasks() == []


def test_a_backend_of_others_is_left_alone(declare: Any, settings: Any) -> None:
    declare(on_failure="tests.nowhere.tell")
    settings.TASKS = {"default": {"BACKEND": DUMMY, "QUEUES": []}}
    assert checks.check_references_of_tasks() == []
    settings.TASKS = {"default": {"BACKEND": "no.such.Backend"}}
    assert checks.check_references_of_tasks() == []
    settings.PGJOBS = {"no such key": 1}
    assert checks.check_references_of_tasks() == []


def test_the_tasks_of_the_tests_are_clean() -> None:
    assert charge.on_failure is tell
    assert checks.check_references_of_tasks() == []
