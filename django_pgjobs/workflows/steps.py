"""From a call to what a batch keeps of it: the columns of jobs that are yet to be made.

The database makes them, in the transaction that finishes what they follow. So nothing of Python is
asked then: a key that is made of the arguments is worked out by the worker that meets the job, as
for a job of plain SQL.
"""

from __future__ import annotations

import inspect
import json
import reprlib
from typing import Any

from django_pgjobs.compat import AnyTask, InvalidTask
from django_pgjobs.compat import Task as BaseTask
from django_pgjobs.conf import SERVER_PAYLOAD_BYTES, get_conf
from django_pgjobs.declaring.calls import Call
from django_pgjobs.declaring.keys import parse_template
from django_pgjobs.declaring.own_tasks import is_ours
from django_pgjobs.declaring.registry import find_task
from django_pgjobs.declaring.signatures import check_signature
from django_pgjobs.declaring.tasks import Task, has_start_keys
from django_pgjobs.enqueueing.columns import all_start_columns, job_columns
from django_pgjobs.values.payload import encode_value
from django_pgjobs.values.words import counted

# What the database may write around the arguments, and for each that it puts before them: an id.
AROUND_BYTES, LEADING_BYTES = 64, 24
# What `.using()` may say of keys; a job that is made later has what its task declares.
DECLARED_ONLY = ("concurrency_key", "concurrency_limit", "ordering", "rate_limit", "rate_cost")


def check_call(call: object) -> Call:
    """Return *call*; raise TypeError if it is none, and as `check_task` does."""
    if isinstance(call, Call):
        check_task(call.task)
        return call
    if isinstance(call, BaseTask):
        name = call.name
        raise TypeError(f"expected a call such as {name}.s(...), got the task {name} itself.")
    said = f"expected a call such as push.s(17), got {reprlib.repr(call)}."
    is_list = isinstance(call, list | tuple)
    raise TypeError(f"{said} Give the calls of a list with a star: *calls." if is_list else said)


def check_task(task: object) -> AnyTask:
    """Return *task*; raise TypeError, InvalidTask or what its backend raises if it cannot be one.

    It has a backend of ours.
    """
    if not isinstance(task, BaseTask):
        raise TypeError(f"expected a task, got {reprlib.repr(task)}.")
    backend: Any = task.get_backend()
    if not is_ours(backend):
        raise InvalidTask(
            f"expected {task.module_path} to have a backend whose jobs our workers run, got "
            f"{task.backend!r}."
        )
    backend.check_task(task)
    return task


def make_step(call: object, *, leading: int) -> dict[str, Any]:
    """Return the columns of the jobs that a call makes, with *leading* arguments before its own.

    Raise TypeError or ValueError if the task cannot be called so, or its arguments be stored.
    """
    call = check_call(call)
    task, args = call.task, list(call.args)
    try:
        check_signature(task, (*(None for _ in range(leading)), *args), call.kwargs)
    except TypeError as error:
        given = counted(leading, "argument")
        raise TypeError(f"{error} The workflow puts {given} before those of the call.") from None
    limit = get_conf().MAX_PAYLOAD_BYTES
    room = max(0, SERVER_PAYLOAD_BYTES - AROUND_BYTES - LEADING_BYTES * leading)
    text = encode_value(args, name="args", max_bytes=min(limit, room))
    kwargs = encode_value(dict(call.kwargs), name="kwargs", max_bytes=limit)
    row: dict[str, Any] = dict(job_columns(task))
    step = {
        **row,
        "run_after": _instant(row["run_after"]),
        "metadata": json.loads(row["metadata"]),
        "args": json.loads(text),
        "kwargs": json.loads(kwargs),
        # What stands behind the leading arguments.
        "more": f",{text[1:-1]}" if args else "",
        "is_declared": not has_start_keys(task),
    }
    if isinstance(task, Task):
        step |= _start(task)
    return step


def _start(task: Task) -> dict[str, Any]:
    if task.unique_key is not None:
        raise InvalidTask(
            f"expected {task.module_path} to have no unique_key: the job is made by the statement "
            "that finishes others, which is to wait for nobody who has just taken the key."
        )
    if task.after:
        raise InvalidTask(
            f"{task.module_path} expected no after=: what the job follows is where it is placed."
        )
    declared = find_task(task.module_path)
    for name in DECLARED_ONLY:
        if getattr(task, name) != getattr(declared, name):
            raise InvalidTask(
                f"{task.module_path} expected {name} as @task declares it, "
                f"{getattr(declared, name)!r}, got {getattr(task, name)!r}: the job is made later, "
                "by the database."
            )
    start = all_start_columns(task)
    return {
        "subject": start["subject"],
        "max_losses": start["max_losses"],
        "expires_at": _instant(start["expires"]),
        "expires_in": start["expires_in"],
        "on_failure": json.loads(start["on_failure"]) if start["on_failure"] else None,
    }


def refuse_keys_of_arguments(task: AnyTask, gathered: int) -> None:
    """Raise InvalidTask if a key is made of the first *gathered* arguments.

    These are read where the job runs, and the key says when it may.
    """
    if not isinstance(task, Task):
        return
    names = list(inspect.signature(task.func).parameters)[int(task.takes_context) :][:gathered]
    for key in filter(None, (task.concurrency_key, *task.rate_limit)):
        if callable(key) or any(name in names for _, name in parse_template(key)):
            raise InvalidTask(
                f"expected no key of {task.module_path} to be made of the results that it gathers: "
                "they are read where the job runs."
            )


def _instant(moment: Any) -> str | None:
    return moment.isoformat() if moment is not None else None


def name_of(call: object) -> str:
    """Return the last part of the path of a call's task, for a batch that has no other name."""
    return check_call(call).task.name[:100]
