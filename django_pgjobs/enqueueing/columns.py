"""The columns of a job, from its task and arguments; what cannot be stored is refused here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from django_pgjobs.compat import AnyTask
from django_pgjobs.conf import get_conf
from django_pgjobs.declaring.attempts import attempts_of
from django_pgjobs.declaring.endings import find_follow_up
from django_pgjobs.declaring.keys import render_key
from django_pgjobs.declaring.signatures import check_signature, named_arguments
from django_pgjobs.declaring.tasks import Task, has_keys, has_start_keys, is_async
from django_pgjobs.queries.enqueue import PLAIN, JobLine, StartColumns, TaskColumns
from django_pgjobs.tracing.headers import KEY
from django_pgjobs.tracing.sending import current_headers
from django_pgjobs.values.bounds import MAX_RATE_LIMITS_BYTES
from django_pgjobs.values.given import instant_or_delay
from django_pgjobs.values.payload import LATEST, encode_value

Item = Mapping[str, Any] | tuple[Any, ...]


def job_columns(task: AnyTask) -> TaskColumns:
    """Return the columns that the task's options determine."""
    run_after, delay = instant_or_delay(task.run_after)
    ours = task if isinstance(task, Task) else None
    metadata = ours.metadata if ours else None
    return {
        "task_path": task.module_path,
        "queue_name": task.queue_name,
        "backend": task.backend,
        "priority": int(task.priority),
        "run_after": run_after,
        "delay": delay,
        "max_attempts": attempts_of(task),
        "timeout": ours.timeout if ours else None,
        "correlation_id": ours.correlation_id if ours else "",
        "tags": list(ours.tags) if ours else [],
        "metadata": _encode_metadata(metadata or {}),
        "is_async": is_async(task),
    }


def _encode_metadata(metadata: Mapping[str, Any]) -> str:
    headers = current_headers()
    if not metadata and not headers:
        return "{}"
    limit = get_conf().MAX_PAYLOAD_BYTES
    if headers:
        # A trace must not make a job too large.
        with suppress(ValueError):
            both = {**metadata, KEY: headers}
            return encode_value(both, name="metadata", max_bytes=limit)
    return encode_value(dict(metadata), name="metadata", max_bytes=limit)


def start_columns(task: AnyTask) -> StartColumns | None:
    """Return `all_start_columns`, None if the task's jobs are plain."""
    if not isinstance(task, Task):
        return None
    others = (task.subject, task.max_losses, task.expires, task.on_failure)
    has_others = any(value is not None for value in others)
    return all_start_columns(task) if has_others or has_start_keys(task) else None


def all_start_columns(task: AnyTask) -> StartColumns:
    """Return the columns that plain jobs leave empty and that are the same for all of a task.

    Raise TypeError or ValueError for a time or a follow-up that cannot be.
    """
    if not isinstance(task, Task):
        return PLAIN
    expires, expires_in = _expiry(task)
    return {
        "subject": task.subject,
        "concurrency_limit": task.concurrency_limit,
        "skips_waiting": task.ordering == "skip",
        "rate_cost": task.rate_cost,
        "max_losses": task.max_losses,
        "expires": expires,
        "expires_in": expires_in,
        "on_failure": None if task.on_failure is None else _follow_up(task),
    }


def _expiry(task: Task) -> tuple[datetime | None, float | None]:
    """Return when jobs expire, as an instant or as seconds after the enqueue.

    A length of time counts from the earliest start.
    """
    instant, seconds = instant_or_delay(task.expires, name="expires")
    start, delay = instant_or_delay(task.run_after)
    if instant is not None and start is not None and instant <= start:
        raise ValueError(
            f"expected expires to be later than run_after, {start}, got {instant}: "
            "the job could never start."
        )
    if seconds is None:
        return instant, None
    if start is None:
        return None, seconds + max(0.0, delay or 0.0)
    start = max(start, datetime.now(UTC))
    return (start + timedelta(seconds=min(seconds, (LATEST - start).total_seconds()))), None


def _follow_up(task: Task) -> str:
    """Return the JSON of what is enqueued when a job fails."""
    call = find_follow_up(task)
    handler = call.task
    return json.dumps(
        {
            "task_path": handler.module_path,
            "queue_name": handler.queue_name,
            "backend": handler.backend,
            "priority": int(handler.priority),
            "is_async": is_async(handler),
        }
        | ({"kwargs": dict(call.kwargs)} if call.kwargs else {})
    )


def concurrency_key_of(task: Task, arguments: Mapping[str, Any]) -> str | None:
    """Return the concurrency key of a job with these arguments by name.

    Raise TypeError or ValueError if it is unusable.
    """
    key = task.concurrency_key
    if key is None:
        return None
    return render_key("concurrency_key", key, task.module_path, arguments)


def rate_limits_of(task: Task, arguments: Mapping[str, Any]) -> str | None:
    """Return the rate limits of a job with these arguments by name, one a line.

    Raise TypeError or ValueError if one is unusable, or they are too long.
    """
    path = task.module_path
    limits = {render_key("rate_limit", key, path, arguments) for key in task.rate_limit}
    lines = "\n".join(sorted(filter(None, limits)))
    size = len(lines.encode())
    if size > MAX_RATE_LIMITS_BYTES:
        raise ValueError(
            f"expected the rate limits of a job to take at most {MAX_RATE_LIMITS_BYTES} bytes in "
            f"all, one a line, got {len(limits)} of {size} bytes. Use fewer limits or shorter keys."
        )
    return lines or None


def unique_key_of(task: Task, arguments: Mapping[str, Any]) -> str | None:
    """Return the unique key of a job with these arguments by name.

    Raise TypeError or ValueError if it is unusable.
    """
    key = task.unique_key
    return None if key is None else render_key("unique_key", key, task.module_path, arguments)


def make_line(task: AnyTask, args: Any, kwargs: Mapping[str, Any]) -> JobLine:
    """Return the line of one job; raise TypeError or ValueError if it cannot be stored."""
    line = _encoded(task, args, kwargs)
    if not has_keys(task):
        return line
    return JobLine(line.args, line.kwargs, *keys_of(task, args, kwargs))


def keys_of(
    task: Task, args: Any, kwargs: Mapping[str, Any]
) -> tuple[str | None, str | None, str | None]:
    """Return the concurrency key, the rate limits and the unique key of a job.

    Raise TypeError or ValueError for an unusable key.
    """
    arguments = named_arguments(task, args, kwargs)
    return (
        concurrency_key_of(task, arguments),
        rate_limits_of(task, arguments),
        unique_key_of(task, arguments),
    )


def split_item(item: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the positional and the keyword arguments that an item of enqueue_many() holds."""
    if isinstance(item, Mapping):
        return (), item
    if isinstance(item, tuple | list):
        return item, {}
    raise TypeError(
        f"expected a dict of keyword arguments or a tuple of positional ones, got {item!r}."
    )


def _encoded(task: AnyTask, args: Any, kwargs: Any) -> JobLine:
    """Return both texts; raise TypeError or ValueError if the task cannot be called with them."""
    check_signature(task, args, kwargs)
    limit = get_conf().MAX_PAYLOAD_BYTES
    return JobLine(
        encode_value(list(args), name="args", max_bytes=limit) if args else "[]",
        encode_value(dict(kwargs), name="kwargs", max_bytes=limit) if kwargs else "{}",
    )
