"""What a task declares, for a job whose row was written without it: by a plain INSERT, say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_pgjobs.compat import AnyTask
from django_pgjobs.declaring.lacking import missing_keys, with_options
from django_pgjobs.declaring.signatures import check_signature, named_arguments
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.enqueueing.columns import concurrency_key_of, rate_limits_of, unique_key_of
from django_pgjobs.enqueueing.merging import frees_key_at_claim
from django_pgjobs.queries.filling import Control

KEYS = {
    "concurrency_key": concurrency_key_of,
    "rate_limit_keys": rate_limits_of,
    "unique_key": unique_key_of,
}


def filled_in(task: AnyTask, row: Control, args: Any, kwargs: Mapping[str, Any]) -> Control:
    """Return what the row of a job with these arguments is to say, as `enqueue` would write it.

    A key that the row has is kept. Raise TypeError or ValueError, or what a function
    of the project raises, if another is unusable.
    """
    filled = with_options(task, row)
    missing = missing_keys(task, row)
    if not (isinstance(task, Task) and missing):
        return filled
    check_signature(task, args, kwargs)
    arguments = named_arguments(task, args, kwargs)
    keys: dict[str, Any] = {name: KEYS[name](task, arguments) for name in missing}
    filled = filled._replace(**keys)
    if row.unique_key is not None or filled.unique_key is None:
        return filled
    return filled._replace(
        unique_until_claimed=frees_key_at_claim(task),
        # Merging is too late: the arguments of this job are in its row only.
        yields=task.on_conflict in ("return", "raise"),
    )
