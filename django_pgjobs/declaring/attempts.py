"""How many attempts the jobs of a task have: as it declares, else as the settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_pgjobs.compat import AnyTask, task_backends
from django_pgjobs.conf import ATTEMPTS, accepts, get_conf
from django_pgjobs.declaring.tasks import Task


def attempts_of(task: AnyTask, alias: str | None = None) -> int:
    """Return after how many attempts a job of *task* fails whose row does not say.

    A task that was not declared with our @task may not be safe to repeat, so it has one attempt
    unless the settings of the backend *alias*, by default the task's, say more.
    """
    ours = task if isinstance(task, Task) else None
    if ours is not None and ours.max_attempts:
        return ours.max_attempts
    if ours is not None and ours.is_ours:
        return get_conf().MAX_ATTEMPTS
    alias = alias or task.backend
    # A row may be of an alias that this project does not have.
    options = task_backends[alias].options if alias in task_backends.settings else {}
    return foreign_max_attempts(task.module_path, alias, options)


def foreign_max_attempts(path: str, alias: str, options: Mapping[str, Any]) -> int:
    """Return how many attempts a job has whose task was not declared with our @task.

    *options* are those of the backend *alias* in TASKS. The longest path of
    FOREIGN_MAX_ATTEMPTS_BY_PATH that the task is at or below decides, else the options, else the
    setting. Raise ImproperlyConfigured if the option is unusable.
    """
    conf = get_conf()
    if conf.FOREIGN_MAX_ATTEMPTS_BY_PATH:
        place = path
        while place:
            if place in conf.FOREIGN_MAX_ATTEMPTS_BY_PATH:
                return conf.FOREIGN_MAX_ATTEMPTS_BY_PATH[place]
            place = place.rpartition(".")[0]
    given: int | None = options.get("FOREIGN_MAX_ATTEMPTS")
    if given is None:
        return conf.FOREIGN_MAX_ATTEMPTS
    if not accepts(ATTEMPTS, given):
        raise ImproperlyConfigured(
            f"expected TASKS[{alias!r}]['OPTIONS']['FOREIGN_MAX_ATTEMPTS'] to be "
            f"{ATTEMPTS.expected}, got {given!r}. See docs/settings.md."
        )
    return given
