"""Where our own tasks run: at a backend that stores jobs, in a queue that it accepts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_pgjobs.compat import task_backends

EXAMPLE = 'TASKS = {"default": {"BACKEND": "django_pgjobs.backend.PgJobsBackend", "QUEUES": []}}'


def is_ours(backend: Any) -> bool:
    """Does a backend, or a class of them, store jobs that our workers run?"""
    # The class may not be imported down here; a project may have a subclass of it.
    bases = (backend if isinstance(backend, type) else type(backend)).__mro__
    return any(base.__module__ == "django_pgjobs.backend" for base in bases)


def find_alias() -> str:
    """Return the first alias of TASKS whose backend stores jobs, else the default one.

    Raise ImproperlyConfigured if there is neither.
    """
    for alias in task_backends.settings:
        with suppress(ImproperlyConfigured, ImportError):
            if is_ours(task_backends[alias]):
                return str(alias)
    if "default" not in task_backends.settings:
        named = ", ".join(map(repr, task_backends.settings)) or "nothing"
        raise ImproperlyConfigured(f"TASKS names {named}. django_pgjobs needs {EXAMPLE}.")
    return "default"


def find_queue(alias: str, wanted: str) -> str:
    """Return the queue that is *wanted*, or one that the backend accepts if it does not."""
    queues = sorted(getattr(task_backends[alias], "queues", ()))
    return wanted if not queues or wanted in queues else queues[0]


def find_queue_problems(task: Any) -> Iterator[str]:
    """Yield what is wrong with the queue of *task* because TASKS names no backend of ours."""
    backend = task_backends[task.backend]
    queues = getattr(backend, "queues", ())
    if queues and task.queue_name not in queues and not is_ours(backend):
        yield (
            f"expected queue_name to be one of {sorted(queues)}, got {task.queue_name!r}: "
            f"{task.backend!r} in TASKS is {type(backend).__name__}. Write {EXAMPLE}."
        )
