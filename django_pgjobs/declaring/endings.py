"""What a task declares about the end of its jobs: when they expire, who is told of a failure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django_pgjobs.compat import AnyTask, InvalidTask
from django_pgjobs.declaring.options import is_path
from django_pgjobs.declaring.registry import IMPORT_ERRORS, is_task, load_module, said_of
from django_pgjobs.declaring.signatures import check_signature
from django_pgjobs.values.given import instant_or_delay

# What a task that is told of a failure is called with: the id of a job, and its last error.
TOLD = (1, "error")


def find_end_problems(task: Any) -> Iterator[str]:
    """Yield what is wrong with the options of *task* about the end of its jobs.

    Where a dotted path leads is not known yet: that may be declared further down.
    """
    expires, handler = task.expires, task.on_failure
    if expires is not None and (
        not isinstance(expires, datetime | timedelta)
        or (isinstance(expires, timedelta) and expires <= timedelta())
    ):
        yield f"expected expires to be a datetime or a timedelta of more than 0, got {expires!r}."
    elif expires is not None:
        try:
            instant_or_delay(expires, name="expires")
        except ValueError as error:
            yield str(error)
    if is_task(handler):
        yield from _find_call_problems(handler)
    elif handler is not None and not is_path(handler):
        yield f"expected on_failure to be a task or the dotted path of one, got {handler!r}."


def _find_call_problems(handler: AnyTask) -> Iterator[str]:
    try:
        check_signature(handler, TOLD, {})
    except TypeError as error:
        yield f"expected on_failure to be a task that takes a job's id and a text: {error}"


def find_follow_up(task: Any) -> AnyTask:
    """Return the task that is enqueued when a job of *task* fails.

    Raise InvalidTask, which names the option, if there is none that could be called so.
    """
    found = given = task.on_failure
    shown = given.module_path if is_task(given) else given
    said = f"{task.module_path} option on_failure={shown!r}"
    if isinstance(given, str):
        module_name, _, name = given.rpartition(".")
        try:
            found = getattr(load_module(module_name), name, None)
        except IMPORT_ERRORS as error:
            raise InvalidTask(
                f"{said}: {module_name} cannot be imported: {said_of(error)}"
            ) from error
    if not is_task(found):
        raise InvalidTask(f"{said} is expected to be the path of a task, got {found!r}.")
    for problem in _find_call_problems(found):
        raise InvalidTask(f"{said}: {problem}")
    return found
