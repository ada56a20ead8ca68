"""What a row that was written without `enqueue()` lacks of what its task declares.

What the row says itself goes first. Only the queue "default" and the priority 0 cannot be told from
an omission, because they are the table's defaults: the task's go before them.
"""

from __future__ import annotations

from django_pgjobs.compat import AnyTask
from django_pgjobs.conf import DEFAULT_PRIORITY, DEFAULT_QUEUE
from django_pgjobs.declaring.registry import find_task, list_task_paths
from django_pgjobs.declaring.tasks import Task, declares_control, has_keys
from django_pgjobs.queries.filling import Control


def missing_keys(task: AnyTask, row: Control) -> frozenset[str]:
    """Return the columns of the keys that the task declares and the row does not give."""
    if not isinstance(task, Task):
        return frozenset()
    declared = {
        "concurrency_key": task.concurrency_key,
        "rate_limit_keys": task.rate_limit,
        "unique_key": task.unique_key,
    }
    return frozenset(name for name, key in declared.items() if key and getattr(row, name) is None)


def with_options(task: AnyTask, row: Control) -> Control:
    """Return the row with all that the task declares but keys, which depend on the arguments."""
    placed = row._replace(
        queue_name=task.queue_name if row.queue_name == DEFAULT_QUEUE else row.queue_name,
        priority=int(task.priority) if row.priority == DEFAULT_PRIORITY else row.priority,
    )
    if not has_keys(task):
        return placed
    return placed._replace(
        concurrency_limit=row.concurrency_limit or task.concurrency_limit,
        skips_waiting=row.skips_waiting or task.ordering == "skip",
        rate_cost=task.rate_cost if row.rate_cost == 1 else row.rate_cost,
    )


def lacks_something(task: AnyTask, row: Control) -> bool:
    """May the row lack what the task declares?

    A missing key may turn out to be none: only the arguments tell.
    """
    return bool(missing_keys(task, row)) or with_options(task, row) != row


def declaring_paths() -> list[str]:
    """Return the tasks that declare when their jobs start: rows may lack it."""
    return [path for path in list_task_paths() if declares_control(find_task(path))]
