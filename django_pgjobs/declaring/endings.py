"""What a task declares about the end of its jobs: expiry, and the task for failures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django_pgjobs.compat import InvalidTask
from django_pgjobs.conf import SERVER_PAYLOAD_BYTES
from django_pgjobs.declaring.calls import Call
from django_pgjobs.declaring.options import is_path
from django_pgjobs.declaring.registry import IMPORT_ERRORS, is_task, load_module, said_of
from django_pgjobs.declaring.signatures import check_signature
from django_pgjobs.values.given import instant_or_delay, remedy_for_number
from django_pgjobs.values.moments import given_in_words
from django_pgjobs.values.payload import encode_value, quoted

# The arguments of a task that is called on a failure: the id of a job, and its last error.
TOLD = (1, "error")


def find_end_problems(task: Any) -> Iterator[str]:
    """Yield what is wrong with the options of *task* about the end of its jobs.

    A dotted path is not resolved yet: it may name a task that is declared further down.
    """
    expires, handler = task.expires, task.on_failure
    if expires is not None and (
        not isinstance(expires, datetime | timedelta)
        or (isinstance(expires, timedelta) and expires <= timedelta())
    ):
        given = given_in_words(expires)
        said = f"expected expires to be a datetime or a timedelta of more than 0, got {given}."
        yield said + remedy_for_number(expires)
    elif expires is not None:
        try:
            instant_or_delay(expires, name="expires")
        except ValueError as error:
            yield str(error)
    if isinstance(handler, Call):
        yield from _find_call_problems(handler)
    elif is_task(handler):
        yield from _find_call_problems(Call(handler, (), {}))
    elif handler is not None and not is_path(handler):
        yield (
            "expected on_failure to be a task, the dotted path of one, or a call such as "
            f"tell.s(channel='ops'), got {quoted(handler)}."
        )


def _find_call_problems(call: Call) -> Iterator[str]:
    if call.args:
        yield f"expected on_failure to have its own arguments by name, got {call.args!r:.80}."
        return
    try:
        check_signature(call.task, TOLD, call.kwargs)
    except TypeError as error:
        yield f"expected on_failure to be a task that takes a job's id and a text: {error}"
        return
    try:
        encode_value(dict(call.kwargs), name="kwargs", max_bytes=SERVER_PAYLOAD_BYTES)
    except (TypeError, ValueError) as error:
        yield f"expected on_failure to have arguments that can be stored: {error}"


def find_follow_up(task: Any) -> Call:
    """Return the task, and its own arguments, that is enqueued when a job of *task* fails.

    Raise InvalidTask, which names the option, if there is no such task.
    """
    given = task.on_failure
    found, kwargs = (given.task, given.kwargs) if isinstance(given, Call) else (given, {})
    shown = found.module_path if is_task(found) else found
    said = f"{task.module_path} option on_failure={shown!r}"
    if isinstance(given, str):
        module_name, _, name = given.rpartition(".")
        try:
            module = load_module(module_name)
        except IMPORT_ERRORS as error:
            raise InvalidTask(
                f"{said}: {module_name} cannot be imported: {said_of(error)}"
            ) from error
        if not hasattr(module, name):
            raise InvalidTask(f"{said}: the module {module_name} has no {name!r}.")
        found = getattr(module, name)
    if not is_task(found):
        raise InvalidTask(f"{said} is expected to be the path of a task, got {found!r}.")
    call = Call(found, (), kwargs)
    for problem in _find_call_problems(call):
        raise InvalidTask(f"{said}: {problem}")
    return call
