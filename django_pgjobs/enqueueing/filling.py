"""What a task declares, for a job whose row was written without it: by a plain INSERT, say.

What the row says itself goes first. Nobody can say in a row that it is to be in the queue
"default" or of priority 0 although its task declares another: these are the table's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.signatures import check_signature
from django_pgjobs.declaring.tasks import DEFAULT_PRIORITY, DEFAULT_QUEUE, Task
from django_pgjobs.enqueueing.columns import has_start_keys, keys_of
from django_pgjobs.enqueueing.merging import frees_key_at_claim, is_unique
from django_pgjobs.queries.filling import Control


def filled_in(task: AnyTask, row: Control, args: Any, kwargs: Mapping[str, Any]) -> Control:
    """Return what the row of a job with these arguments is to say, as `enqueue` would write it.

    Raise TypeError or ValueError, or what a function of the project raises, if a key comes to
    nothing usable.
    """
    placed = row._replace(
        queue_name=task.queue_name if row.queue_name == DEFAULT_QUEUE else row.queue_name,
        priority=int(task.priority) if row.priority == DEFAULT_PRIORITY else row.priority,
    )
    if not (isinstance(task, Task) and (has_start_keys(task) or is_unique(task))):
        return placed
    check_signature(task, args, kwargs)
    concurrency_key, rate_limit_keys, unique_key = keys_of(task, args, kwargs)
    is_kept = row.unique_key is not None or unique_key is None
    return placed._replace(
        concurrency_key=row.concurrency_key or concurrency_key,
        concurrency_limit=row.concurrency_limit or task.concurrency_limit,
        skips_waiting=row.skips_waiting or task.ordering == "skip",
        rate_limit_keys=row.rate_limit_keys or rate_limit_keys,
        rate_cost=task.rate_cost if row.rate_cost == 1 else row.rate_cost,
        unique_key=row.unique_key or unique_key,
        unique_until_claimed=row.unique_until_claimed if is_kept else frees_key_at_claim(task),
        # The arguments of one that would have been merged are nowhere else.
        yields=not is_kept and task.on_conflict in ("return", "raise"),
    )
