"""A row's text is looked up among what is loaded, and never imported or called."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.apps import apps
from django.test import override_settings
from django.utils.functional import SimpleLazyObject

from django_pgjobs import UnknownTask, cancel, requeue
from django_pgjobs.declaring import registry
from django_pgjobs.declaring.registry import (
    discover_tasks,
    discover_tasks_once,
    find_task,
    is_task,
    list_task_paths,
)
from django_pgjobs.management.banner import declared_tasks
from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.factories import get_job, make_job

CANARY = """
from pathlib import Path
from django_pgjobs import task
Path(__file__).with_suffix(".sang").touch()

@task
def sing(): return "sung"
"""


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module `canary` that can be imported; the path exists when that has happened."""
    (tmp_path / "canary.py").write_text(CANARY)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "canary.sang"
    sys.modules.pop("canary", None)
    registry._found.pop("canary.sing", None)
    registry._discovered.cache_clear()


@pytest.fixture
def strange_module() -> Iterator[ModuleType]:
    """A loaded module whose names the test chooses."""
    module = sys.modules["strange"] = ModuleType("strange")
    yield module
    del sys.modules["strange"]


def test_a_declared_task_is_found_by_its_path() -> None:
    assert find_task("tests.tasks.add") is tasks.add
    assert find_task("tests.tasks.add") is tasks.add


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "add",
        "tests.tasks",
        "tests.tasks.nothing",
        "tests.tasks.append_line",
        "tests.tasks.add.func",
        "tests.tasks.Mishap",
        "tests.test_enqueue.renamed",
        "os.system",
        "subprocess.check_output",
        "builtins.eval",
        "nowhere.at.all",
        "tests.tasks.add ",
        "tests..tasks.add",
        "object.__init__",
        "__main__.__builtins__",
        "sys.modules",
        "ä.'; DROP TABLE",
    ],
)
def test_everything_else_is_unknown_and_the_error_says_what_to_do(path: str) -> None:
    with pytest.raises(UnknownTask) as caught:
        find_task(path)
    assert str(caught.value) == (
        f"no task {path} is declared here. Deploy its code, and name its app in "
        "INSTALLED_APPS, whose tasks.py is loaded, or its module in PGJOBS['TASK_MODULES']."
    )


def test_what_sys_modules_holds_besides_modules_is_no_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slotted:
        __slots__ = ()

    for value in (None, Slotted(), 5, SimpleLazyObject(lambda: 1 / 0)):
        monkeypatch.setitem(sys.modules, "trap", value)
        with pytest.raises(UnknownTask):
            find_task("trap.f")
        list_task_paths()


def test_a_task_is_found_under_its_own_path_only(strange_module: ModuleType) -> None:
    vars(strange_module)["add"] = tasks.add
    with pytest.raises(UnknownTask):
        find_task("strange.add")
    assert "strange.add" not in list_task_paths()


def test_a_module_that_makes_names_on_demand_is_not_asked(strange_module: ModuleType) -> None:
    def make(name: str) -> Any:
        raise AssertionError(f"asked for {name}")

    vars(strange_module)["__getattr__"] = make
    with pytest.raises(UnknownTask):
        find_task("strange.task")


def test_lazy_objects_are_not_woken(strange_module: ModuleType) -> None:
    lazy = SimpleLazyObject(lambda: 1 / 0)
    vars(strange_module)["lazy"] = lazy
    assert not is_task(lazy)
    assert not [path for path in list_task_paths() if path.startswith("strange")]
    with pytest.raises(UnknownTask):
        find_task("strange.lazy")


def test_tasks_of_any_class_are_listed_and_other_classes_are_not_asked(
    strange_module: ModuleType,
) -> None:
    class TaskOfTheProject(type(tasks.add)):  # type: ignore[misc]
        pass

    class Unhashable(type):
        def __hash__(cls) -> int:
            raise AssertionError("asked for the hash of a class")

    def run() -> None: ...

    run.__module__, run.__qualname__ = "strange", "run"
    of_add = {each.name: getattr(tasks.add, each.name) for each in fields(tasks.add) if each.init}
    vars(strange_module)["run"] = TaskOfTheProject(**of_add | {"func": run})
    vars(strange_module)["odd"] = Unhashable("Odd", (), {})()
    assert "strange.run" in list_task_paths()


@pytest.mark.django_db
def test_nothing_that_looks_at_a_row_imports_what_it_names(canary: Path) -> None:
    """The worker, get_result(), cancel() and requeue()."""
    for path in ("canary.sing", "canary.Missing", "canary"):
        job_id = make_job(path)
        result = tasks.add.get_backend().get_result(str(job_id))
        assert result.task.func is not None
        assert cancel(job_id)
        assert requeue(job_id)
        run_jobs()
        assert get_job(job_id).status == "failed"
    assert not canary.exists()
    assert "canary" not in sys.modules


@pytest.mark.django_db
def test_a_path_to_something_else_is_never_called(tmp_path: Path) -> None:
    job_id = make_job("subprocess.check_output", args=[["touch", str(tmp_path / "file")]])
    assert subprocess.check_output(["true"]) == b""
    run_jobs()
    job = get_job(job_id)
    assert job.status == "failed"
    assert job.errors[0]["exception_class"] == "django_pgjobs.exceptions.UnknownTask"
    assert not (tmp_path / "file").exists()


@pytest.mark.django_db
def test_the_modules_of_the_setting_are_imported_when_they_are_needed(canary: Path) -> None:
    job_id = make_job("canary.sing")
    registry._discovered.cache_clear()
    with override_settings(PGJOBS={"TASK_MODULES": ["canary"]}):
        result = tasks.add.get_backend().get_result(str(job_id))
    assert canary.exists()
    assert result.task.func is sys.modules["canary"].sing.func
    assert run_jobs() == 1
    assert Job.objects.get(pk=job_id).result == "sung"


def test_the_tasks_of_installed_apps_are_discovered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "example_project.shop.tasks", raising=False)
    discover_tasks()
    paths = list_task_paths()
    assert paths == sorted(set(paths))
    assert {"tests.tasks.add", "tests.tasks.add_async"} <= set(paths)


def test_the_banner_counts_the_tasks_of_the_project() -> None:
    """Not our own, which a newcomer who declared one would count as a second."""
    discover_tasks()
    own = [path for path in list_task_paths() if path.startswith("django_pgjobs.")]
    assert own
    assert set(declared_tasks()) == set(list_task_paths()) - set(own)


def test_discovery_happens_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(registry, "discover_tasks", lambda: calls.append("discovered"))
    registry._discovered.cache_clear()
    for _ in range(3):
        discover_tasks_once()
    registry._discovered.cache_clear()
    assert calls == ["discovered"]


def test_a_call_before_the_apps_are_ready_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in AppConfig.ready() of a project, say."""
    calls: list[str] = []
    monkeypatch.setattr(registry, "discover_tasks", lambda: calls.append("discovered"))
    registry._discovered.cache_clear()
    with monkeypatch.context() as loading:
        loading.setattr(apps, "ready", False)
        discover_tasks_once()
    assert calls == []
    discover_tasks_once()
    registry._discovered.cache_clear()
    assert calls == ["discovered"]
