"""The backend as django.tasks calls it: settings, validation, aliases, signals.

Numbers like "1.3" are the rules of django.tasks that the module follows; the results have
their own module.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import override_settings

from django_pgjobs import Task, compat, task
from django_pgjobs.backend import PgJobsBackend
from django_pgjobs.compat import (
    TASKS_PACKAGE,
    AnyResult,
    AnyTask,
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_backends,
    task_enqueued,
)
from tests import tasks
from tests.factories import count_jobs, get_job
from tests.helpers import ROOT

OURS = {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}
DUMMY = {"BACKEND": f"{TASKS_PACKAGE}.backends.dummy.DummyBackend", "QUEUES": []}
IMMEDIATE = {"BACKEND": f"{TASKS_PACKAGE}.backends.immediate.ImmediateBackend", "QUEUES": []}
NAIVE = datetime(2031, 1, 1)  # noqa: DTZ001


def foreign(a: int = 0) -> int:
    """Becomes a plain task of Django's below."""
    return a


with override_settings(TASKS={"default": DUMMY}):
    plain_task = foreign = __import__(TASKS_PACKAGE, fromlist=["task"]).task(foreign)


@pytest.fixture
def enqueued() -> Any:
    """What `task_enqueued` was sent with, in order."""
    sent: list[tuple[type, AnyResult]] = []

    def receive(sender: type, task_result: AnyResult, **kwargs: Any) -> None:
        sent.append((sender, task_result))

    task_enqueued.connect(receive)
    yield sent
    task_enqueued.disconnect(receive)


def test_the_backend_supports_everything_a_database_can() -> None:
    assert issubclass(PgJobsBackend, BaseTaskBackend)
    flags = ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority")
    assert [getattr(PgJobsBackend, flag) for flag in flags] == [True] * 4
    assert PgJobsBackend.task_class is Task


def test_the_backend_takes_the_settings_of_its_alias() -> None:
    """Options stay as they are, queues default to one, [] is all of them."""
    backend = PgJobsBackend(alias="a", params={"QUEUES": ["x", "y"], "OPTIONS": {"k": 1}})
    assert (backend.alias, backend.queues, backend.options) == ("a", {"x", "y", "pgjobs"}, {"k": 1})
    assert PgJobsBackend(alias="a", params={}).queues == {"default", "pgjobs"}
    assert PgJobsBackend(alias="a", params={"QUEUES": []}).options == {}


def test_a_thread_has_its_own_backend_and_nothing_is_lost_with_it() -> None:
    made: list[object] = []
    thread = threading.Thread(target=lambda: made.append(task_backends["default"]))
    thread.start()
    thread.join()
    assert made[0] is not task_backends["default"]
    with override_settings(TASKS={"default": OURS, "more": OURS}):
        assert {backend.alias for backend in task_backends.all()} == {"default", "more"}


def test_a_wrong_path_of_a_backend_is_a_wrong_setting() -> None:
    with override_settings(TASKS={"default": {"BACKEND": "django_pgjobs.backend.Nothing"}}):
        with pytest.raises(ImproperlyConfigured, match="Could not find backend"):
            tasks.add.get_backend()


def context_second(a: int, context: Any) -> None:
    """Has the context in the wrong place."""


def context_first(context: Any, a: int) -> None:
    """Has it in the right one."""


# Each candidate is wrong in one way less than the one before; the texts are Django's.
STEPS = [
    ({"func": print}, "Task function must be defined at a module level."),
    (
        {"func": context_second},
        "Task takes context but does not have a first argument of 'context'.",
    ),
    ({"func": context_first}, "priority must be a whole number between -100 and 100."),
    ({"priority": -101}, "priority must be a whole number between -100 and 100."),
    ({"priority": 1.5}, "priority must be a whole number between -100 and 100."),
    ({"priority": 100}, "run_after must be an aware datetime."),
    (
        {"run_after": NAIVE.replace(tzinfo=UTC)},
        (
            "Queue 'q' is not valid for backend. Add it to TASKS['default']['QUEUES'], or set "
            "that to [], which allows all."
        ),
    ),
]


def test_validation_has_the_order_and_the_texts_of_django() -> None:
    backend = PgJobsBackend(alias="default", params={"QUEUES": ["good"]})
    candidate = SimpleNamespace(
        priority=101, run_after=NAIVE, queue_name="q", takes_context=True, backend="default"
    )
    for change, text in STEPS:
        vars(candidate).update(change, module_path="tests.test_backend.context_first")
        with pytest.raises(InvalidTask) as caught:
            backend.validate_task(candidate)  # type: ignore[arg-type]
        assert str(caught.value) == text
    candidate.queue_name = "good"
    backend.validate_task(candidate)  # type: ignore[arg-type]


def test_a_naive_time_is_good_where_the_project_has_no_time_zones() -> None:
    with override_settings(USE_TZ=False):
        assert tasks.add.using(run_after=NAIVE).run_after == NAIVE


def test_a_timedelta_is_kept_until_the_job_is_enqueued() -> None:
    """Django's docs promise it, its code does not."""
    later = tasks.add.using(run_after=timedelta(minutes=1))
    assert later.run_after == timedelta(minutes=1)
    assert later.using(priority=1).run_after == timedelta(minutes=1)


def test_a_path_that_the_table_cannot_hold_is_refused() -> None:
    def function() -> None: ...

    function.__qualname__ = "f" * 500
    function.__module__ = "m" * 20
    with pytest.raises(InvalidTask, match="expected the task's path to be text of 1 to 512 bytes"):
        task(function)


EARLY_MODELS = """
from django.db import models
from django_pgjobs import Exponential, task
from django.apps import apps

@task(max_attempts=3, backoff=Exponential(base=1))
def at_import(a):
    return a

assert not apps.models_ready
later = at_import.using(priority=3, queue_name="q")

class Thing(models.Model):
    class Meta:
        app_label = "early"
"""
EARLY_SETTINGS = """
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": 1}}
INSTALLED_APPS = ["early", "django_pgjobs"]
TASKS = {"default": {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
EARLY_PROGRAM = """
import django_pgjobs.backend, django
django.setup()
from early import models
from django_pgjobs import Task
assert type(models.at_import) is Task, type(models.at_import)
assert (models.later.priority, models.later.queue_name) == (3, "q")
from django.core.management import call_command
call_command("check")
"""


@pytest.mark.slow
def test_tasks_may_be_declared_while_models_are_imported(tmp_path: Path) -> None:
    """Before the app registry is ready, and without a database."""
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "__init__.py").touch()
    (tmp_path / "early" / "models.py").write_text(EARLY_MODELS)
    (tmp_path / "early_settings.py").write_text(EARLY_SETTINGS)
    outcome = subprocess.run(
        [sys.executable, "-W", "error", "-c", EARLY_PROGRAM],
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "early_settings",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.django_db
def test_a_plain_task_of_django_reaches_us_through_using() -> None:
    """It has none of our options, and keeps its class."""
    assert type(plain_task) is AnyTask
    with override_settings(TASKS={"default": DUMMY, "ours": OURS}):
        ours = plain_task.using(backend="ours", priority=3, queue_name="q")
        result = ours.enqueue(a=5)
        job = get_job(result.id)
        assert (job.backend, job.priority, job.max_attempts) == ("ours", 3, 1)
        assert ours.get_result(result.id) == result
        assert type(result.task) is AnyTask


@pytest.mark.django_db
def test_a_plain_task_takes_a_timedelta_too() -> None:
    with override_settings(TASKS={"default": DUMMY, "ours": OURS}):
        # Django validates with the backend that the task is on, so ours has to come first.
        later = plain_task.using(backend="ours").using(run_after=timedelta(hours=1))
        result = later.enqueue(a=1)
        assert result.task.run_after - result.enqueued_at == timedelta(hours=1)
        assert later.get_result(result.id) == result


def test_our_task_runs_on_the_dummy_backend_of_a_projects_tests() -> None:
    with override_settings(TASKS={"default": DUMMY}):
        result = tasks.add.using(priority=5, max_attempts=2, tags=["t"]).enqueue(1, b=2)
        many = tasks.add.enqueue_many([(1, 2), {"a": 3, "b": 4}])
        stored = task_backends["default"].results
    assert result.status == TaskResultStatus.READY
    assert [(r.args, r.kwargs) for r in stored] == [
        ([1], {"b": 2}),
        ([1, 2], {}),
        ([], {"a": 3, "b": 4}),
    ]
    assert many == [r.id for r in stored[1:]]


def test_our_task_runs_on_the_immediate_backend() -> None:
    """S1.24."""
    with override_settings(TASKS={"default": IMMEDIATE}):
        assert tasks.add.enqueue(1, 2).return_value == 3
        assert async_to_sync(tasks.add_async.aenqueue)(1, 2).return_value == 3
        assert tasks.describe_context.enqueue(value="v").return_value["attempt"] == 1
        assert tasks.fail_once.enqueue().status == TaskResultStatus.FAILED


@pytest.mark.django_db
def test_aliases_do_not_see_the_jobs_of_each_other() -> None:
    with override_settings(TASKS={"default": OURS, "other": OURS}):
        mine = tasks.add.enqueue(1, 2)
        others = tasks.add.using(backend="other").enqueue(1, 2)
        assert (mine.backend, others.backend) == ("default", "other")
        assert task_backends["other"].get_result(others.id) == others
        assert others.task.backend == "other"
        for alias, result in (("default", others), ("other", mine)):
            with pytest.raises(TaskResultDoesNotExist):
                task_backends[alias].get_result(result.id)


def test_a_task_may_be_declared_for_another_alias() -> None:
    with override_settings(TASKS={"default": DUMMY, "ours": OURS}):
        declared = task(backend="ours", max_attempts=2)(foreign.func)
        assert (type(declared), declared.backend) == (Task, "ours")
        assert isinstance(declared.get_backend(), PgJobsBackend)


def test_a_task_declared_for_another_backend_keeps_its_options() -> None:
    """The dummy backend knows only plain tasks; ours is one, so the options survive tests."""
    with override_settings(TASKS={"default": DUMMY}):
        declared = task(max_attempts=2)(foreign.func)
    assert (type(declared), declared.max_attempts) == (Task, 2)


@pytest.mark.django_db
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_signal_says_what_was_returned_and_its_sender_is_the_class(
    enqueued: list[Any], mode: str
) -> None:
    """Once, after the row is written, inside the open transaction."""
    with transaction.atomic():
        if mode == "sync":
            result = tasks.add.enqueue(1, 2)
        else:
            result = async_to_sync(tasks.add.aenqueue)(1, 2)
        assert enqueued == [(PgJobsBackend, result)]
        assert tasks.add.get_result(result.id) == result


class OtherBackend(PgJobsBackend):
    """A project's own subclass."""


@pytest.mark.django_db
def test_the_sender_is_the_class_of_a_subclass(enqueued: list[Any]) -> None:
    with override_settings(TASKS={"default": {"BACKEND": f"{__name__}.OtherBackend"}}):
        tasks.add.enqueue(1, 2)
        tasks.add.enqueue_many([(1, 2)])
    assert [sender for sender, _ in enqueued] == [OtherBackend] * 2


@pytest.mark.django_db
def test_nothing_is_announced_that_is_refused(enqueued: list[Any]) -> None:
    for arguments in ([object(), 1], [1]):
        with pytest.raises(TypeError):
            tasks.add.enqueue(*arguments)
    assert enqueued == []


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_raises_ends_the_enqueue_as_any_error_would() -> None:
    def refuse(**kwargs: Any) -> None:
        raise PermissionError("no")

    task_enqueued.connect(refuse)
    try:
        with pytest.raises(PermissionError), transaction.atomic():
            tasks.add.enqueue(1, 2)
    finally:
        task_enqueued.disconnect(refuse)
    assert count_jobs() == 0


def test_enqueue_and_its_twins_have_the_signatures_of_django() -> None:
    """Others call and patch them by name."""
    for name in ("enqueue", "aenqueue", "get_result", "aget_result", "validate_task", "check"):
        ours = inspect.signature(getattr(PgJobsBackend, name))
        assert list(ours.parameters) == list(
            inspect.signature(getattr(BaseTaskBackend, name)).parameters
        )
    # Sentry patches Task.enqueue; a class with one of its own would be missed.
    for name in ("enqueue", "aenqueue", "get_result", "aget_result", "call", "acall"):
        assert name not in vars(Task)


def test_without_django_tasks_and_the_backport_the_error_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compat, "TASKS_PACKAGE", "no_such_package")
    with pytest.raises(ImportError, match=r"pip install 'django-pgjobs\[django52\]'"):
        compat._load()


@pytest.mark.skipif(django.VERSION < (6, 0), reason="django.tasks came with Django 6.0")
def test_where_django_has_tasks_the_backport_is_not_used() -> None:
    assert TASKS_PACKAGE == "django.tasks"
