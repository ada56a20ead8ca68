"""How many attempts the jobs of a task have: as it declares, else as the settings say."""

from __future__ import annotations

from django_pgjobs.compat import AnyTask, task_backends
from django_pgjobs.conf import foreign_max_attempts, get_conf
from django_pgjobs.declaring.tasks import Task


def attempts_of(task: AnyTask, alias: str | None = None) -> int:
    """Return after how many attempts a job of *task* fails that does not say it itself.

    A task that was not declared with our @task knows nothing of being repeated, so it has one
    attempt unless the settings say more; those of the backend *alias*, by default the task's.
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
