"""`django.tasks`, or its backport `django_tasks` on Django 5.2, under one name.

Source: docs of Django 6.0 "Tasks" and of django-tasks 0.12. The backport spells some
exceptions with the suffix "Error"; the names here are Django's.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from django.tasks import (
        Task,
        TaskContext,
        TaskResult,
        TaskResultStatus,
        task_backends,
    )
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    AnyTask: TypeAlias = Task[..., Any]
    AnyResult: TypeAlias = TaskResult[..., Any]

TASKS_PACKAGE = "django.tasks" if importlib.util.find_spec("django.tasks") else "django_tasks"


def _load() -> dict[str, Any]:
    try:
        root = importlib.import_module(TASKS_PACKAGE)
    except ModuleNotFoundError as error:
        raise ImportError(
            "django_pgjobs needs django.tasks, which this Django does not have. "
            "Install its backport: pip install 'django-pgjobs[django52]'."
        ) from error
    base = importlib.import_module(f"{TASKS_PACKAGE}.base")
    exceptions = importlib.import_module(f"{TASKS_PACKAGE}.exceptions")
    signals = importlib.import_module(f"{TASKS_PACKAGE}.signals")
    backends = importlib.import_module(f"{TASKS_PACKAGE}.backends.base")
    names: dict[str, Any] = {name: getattr(base, name) for name in FROM_BASE}
    names |= {name: getattr(signals, name) for name in SIGNALS}
    names["task_backends"] = root.task_backends
    names["AnyTask"], names["AnyResult"] = base.Task, base.TaskResult
    names["BaseTaskBackend"] = backends.BaseTaskBackend
    names["TaskResultDoesNotExist"] = exceptions.TaskResultDoesNotExist
    names["InvalidTask"] = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
    return names


FROM_BASE = ("Task", "TaskContext", "TaskError", "TaskResult", "TaskResultStatus", "normalize_json")
SIGNALS = ("task_enqueued", "task_started", "task_finished")

if not TYPE_CHECKING:
    globals().update(_load())

__all__ = [
    "AnyResult",
    "AnyTask",
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
