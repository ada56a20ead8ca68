"""A tasks.py that cannot be imported: the check, the worker, and who looks at its jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import checks as django_checks
from django.core.management import CommandError, call_command, load_command_class
from django.core.management.base import SystemCheckError
from django.test import modify_settings, override_settings
from django.utils.autoreload import autoreload_started, get_reloader

from django_pgjobs import UnknownTask, checks
from django_pgjobs.declaring import registry
from django_pgjobs.declaring.registry import discover_tasks, find_task
from django_pgjobs.management.starting import load_tasks
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.factories import get_job, make_job
from tests.helpers import ROOT, WorkerProcess

Make = Callable[..., Path]
SKIP = {"BROKEN_TASK_MODULES": "skip"}

IMPORTS = "import os\nimport no_such_package\n"
DIVIDES = "from django_pgjobs import task\n\n1 / 0\n"


@pytest.fixture
def make_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Install apps with a tasks.py: `make_app(text, name="broken_app")`; return its file."""
    monkeypatch.syspath_prepend(tmp_path)
    changes = []

    def make(text: str, name: str = "broken_app") -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "tasks.py").write_text(text)
        changes.append(modify_settings(INSTALLED_APPS={"append": name}))
        changes[-1].enable()
        registry._discovered.cache_clear()  # another test may have filled it
        return tmp_path / name / "tasks.py"

    yield make
    for change in reversed(changes):
        change.disable()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("broken_app", "good")]:
        del sys.modules[name]
    registry._found.pop("good.tasks.f", None)
    discover_tasks()
    registry._discovered.cache_clear()


def test_the_check_names_the_module_what_it_raises_and_the_place(make_app: Make) -> None:
    path = make_app(IMPORTS)
    [error] = checks.check_tasks_of_apps()
    assert (error.id, error.level) == ("pgjobs.E005", django_checks.ERROR)
    assert error.msg == (
        "broken_app.tasks cannot be imported: ModuleNotFoundError: No module named "
        f"'no_such_package' ({path}, line 2). Workers will not start."
    )
    assert "PGJOBS['BROKEN_TASK_MODULES'] = 'skip'" in str(error.hint)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (DIVIDES, "ZeroDivisionError: division by zero ({path}, line 3)."),
        (
            DIVIDES.replace("1 / 0", "@task(max_attempts=0)\ndef f(): pass"),
            (
                "@task f expected max_attempts to be a whole number from 1 to 2147483647, got 0. "
                "({path}, line 3)."
            ),
        ),
        ("def f(:\n", "SyntaxError: invalid syntax ({path}, line 1)."),
        ("import sys\nsys.exit()\n", "it calls sys.exit() ({path}, line 2)."),
        ("raise SystemExit('no key')\n", "it calls sys.exit('no key') ({path}, line 1)."),
        ("class Odd(Exception): pass\n\nraise Odd\n", "Odd:  ({path}, line 3)."),
    ],
)
def test_whatever_it_raises_is_said_with_its_place(make_app: Make, text: str, said: str) -> None:
    path = make_app(text)
    [error] = checks.check_tasks_of_apps()
    assert said.format(path=path) in error.msg


def test_a_module_that_ends_the_process_does_not_end_a_worker(make_app: Make) -> None:
    make_app("raise SystemExit(0)\n")
    with pytest.raises(CommandError, match=r"broken_app\.tasks cannot be imported: it calls"):
        call_command("runjobs", "--check", skip_checks=True)


@pytest.mark.django_db
def test_who_repairs_is_not_stopped_by_the_check(
    make_app: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Django's `migrate` is, without --skip-checks."""
    make_app(DIVIDES)
    load_command_class("django_pgjobs", "jobs").run_from_argv(["manage.py", "jobs", "list"])
    assert capsys.readouterr().out == "no ready or running job was found.\n"
    with pytest.raises(SystemCheckError, match=r"pgjobs\.E005"):
        call_command("migrate", "--plan", skip_checks=False)
    with (
        override_settings(PGJOBS={"no such key": 1}),
        pytest.raises(CommandError, match="no such key"),
    ):
        call_command("jobs", "prune", "--dry-run")


@pytest.mark.parametrize("text", [DIVIDES, "def f(:\n", "import broken_app.other\n"])
def test_the_development_server_notices_the_repair(make_app: Make, text: str) -> None:
    """Django's reloader knows the modules that could be imported, and was never to start again."""
    path = make_app(text)
    blamed = path.with_name("other.py") if "other" in text else path
    if blamed != path:
        blamed.write_text(DIVIDES)
    reloader = get_reloader()
    autoreload_started.send(sender=reloader)
    assert blamed in reloader.extra_files


def test_apps_without_tasks_are_no_problem(make_app: Make) -> None:
    make_app("").unlink()
    assert checks.check_tasks_of_apps() == []


def test_a_module_that_asks_the_database_does_not_stop_migrate(make_app: Make) -> None:
    """Which makes what it asks for."""
    make_app("from django.db import ProgrammingError\nraise ProgrammingError('no table')\n")
    [warning] = checks.check_tasks_of_apps()
    assert (warning.id, warning.level) == ("pgjobs.W003", django_checks.WARNING)


def test_what_may_be_skipped_is_a_warning(make_app: Make) -> None:
    make_app(DIVIDES)
    with override_settings(PGJOBS=SKIP):
        [warning] = checks.check_tasks_of_apps()
    assert (warning.id, warning.level) == ("pgjobs.W002", django_checks.WARNING)


def test_a_worker_does_not_start_and_says_why(make_app: Make) -> None:
    path = make_app(DIVIDES)
    with pytest.raises(CommandError) as caught:
        call_command("runjobs", "--check", skip_checks=True)
    assert str(caught.value).startswith(
        "broken_app.tasks cannot be imported: ZeroDivisionError: division by zero "
        f"({path}, line 3). Repair it, or set PGJOBS['BROKEN_TASK_MODULES'] = 'skip'"
    )
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_by_a_setting_it_goes_on_with_the_others(
    make_app: Make, caplog: pytest.LogCaptureFixture
) -> None:
    make_app(DIVIDES)
    make_app("from django_pgjobs import task\n@task\ndef f(): return 1\n", "good")
    with override_settings(PGJOBS=SKIP):
        load_tasks(registry.get_conf())
    assert find_task("good.tasks.f").call() == 1
    [record] = caplog.records
    assert record.levelname == "ERROR" and record.exc_info is not None
    assert record.getMessage().startswith(
        "tasks are left out: broken_app.tasks cannot be imported: ZeroDivisionError"
    )


def test_modules_of_the_setting_are_broken_likewise(make_app: Make) -> None:
    make_app(DIVIDES)
    with override_settings(PGJOBS={"TASK_MODULES": ["no_such_module"]}):
        broken = discover_tasks()
    assert [module.name for module in broken] == ["broken_app.tasks", "no_such_module"]
    assert str(broken[1]) == (
        "no_such_module cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"
    )


@pytest.mark.django_db
def test_who_asks_for_a_result_is_not_troubled(make_app: Make) -> None:
    """The task is a stand-in, as that of any job whose task is not loaded."""
    make_app(DIVIDES)
    job_id = make_job("broken_app.tasks.f", args=[1])
    registry._discovered.cache_clear()
    result = tasks.add.get_backend().get_result(str(job_id))
    assert (result.args, result.task.module_path) == ([1], "broken_app.tasks.f")
    with pytest.raises(
        UnknownTask, match=r"declared here: broken_app\.tasks cannot be imported: Z"
    ):
        find_task("broken_app.tasks.f")


@pytest.mark.django_db
def test_run_jobs_says_so_or_goes_on(make_app: Make) -> None:
    make_app(DIVIDES)
    job_id = make_job("broken_app.tasks.f")
    registry._discovered.cache_clear()
    with pytest.raises(ImportError, match=r"broken_app\.tasks cannot be imported: ZeroDiv"):
        run_jobs()
    with override_settings(PGJOBS=SKIP):
        assert run_jobs() == 1
    assert "broken_app.tasks cannot be imported" in get_job(job_id).errors[0]["message"]


@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_a_real_worker_leaves_it_out(
    make_app: Make, start_worker: Callable[..., WorkerProcess]
) -> None:
    path = make_app(DIVIDES)
    good, bad = make_job(), make_job("broken_app.tasks.f")
    env: dict[str, Any] = {"PYTHONPATH": f"{path.parent.parent}:{ROOT}"}
    changed = {"INSTALLED_APPS": [*settings.INSTALLED_APPS]}
    refused = start_worker("--drain", settings=changed, env=env, wait=False)
    assert refused.wait() == 1
    assert "(pgjobs.E005) broken_app.tasks cannot be imported" in refused.output()
    worker = start_worker("--drain", settings=changed | {"PGJOBS": SKIP}, env=env, wait=False)
    assert worker.wait() == 0
    assert "WARNING broken_app.tasks cannot be imported: ZeroDivisionError" in worker.output()
    assert "1 / 0" in worker.output()
    assert (get_job(good).status, get_job(bad).status) == ("successful", "ready")


@pytest.mark.django_db
def test_jobs_enqueue_says_once_why_a_module_is_broken(make_app: Make) -> None:
    make_app(DIVIDES)
    with pytest.raises(CommandError) as caught:
        call_command("jobs", "enqueue", "broken_app.tasks.f")
    assert str(caught.value).count("ZeroDivisionError") == 1
    with pytest.raises(CommandError, match=r"broken_app\.tasks cannot be imported"):
        call_command("jobs", "enqueue", "elsewhere.tasks.f")


@pytest.mark.django_db
def test_the_doctor_tells_what_keeps_workers_from_starting(
    make_app: Make, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_app(DIVIDES)
    monkeypatch.setitem(sys.modules, "sentry_sdk.crons", None)
    wrong = {"TASK_MODULES": ["no_such_module"], "SENTRY_CHECK_INS": True}
    with override_settings(PGJOBS=wrong, SILENCED_SYSTEM_CHECKS=["pgjobs.W005"]):
        told = json.loads(run("doctor", "--json"))
    # Tests before this one may have left dead rows.
    named = [(each["kind"], each["subject"]) for each in told if each["kind"] != "dead_rows"]
    assert named == [
        ("broken", "pgjobs.E004 no_such_module"),
        ("broken", "pgjobs.E005 broken_app.tasks"),
        ("settings", "pgjobs.W007"),
    ]
    assert told[0]["text"].startswith("PGJOBS['TASK_MODULES'] names 'no_such_module', which cannot")
    assert "division by zero" in told[1]["text"]
    assert "Workers will not start. Repair it, or set PGJOBS[" in told[1]["text"]


@pytest.mark.django_db
def test_the_doctor_knows_the_remote_tasks_that_nobody_has_loaded_yet(
    make_app: Make, run: Callable[..., str]
) -> None:
    declares = "@task(remote=True, queue_name='elsewhere')\ndef f(): ...\n"
    make_app(f"from django_pgjobs import task\n\n{declares}", name="good")
    make_job(task_path="good.tasks.f", queue_name="elsewhere")
    assert run("doctor").splitlines()[0] == (
        "WARNING 1 job waits in queue elsewhere and no live worker over HTTP serves it."
        " [unserved elsewhere]"
    )
