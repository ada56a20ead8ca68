"""Ending a child that a task forked, at the moment it leaves the task.

The child has a copy of everything: the claimed jobs, the slot that would run them next, and the
connections, whose sockets it shares with the worker. So nothing may happen in it after the task:
no commit, no log line, no end of the interpreter in good order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def leave_if_forked(process: int) -> None:
    """End this process unless it is *process*; to be called where a task ends, in a finally.

    The status is that of a program: 0 after a return, 1 after an exception, or what `sys.exit`
    was given.
    """
    if os.getpid() != process:
        os._exit(_status_of(sys.exc_info()[1]))


def _status_of(error: BaseException | None) -> int:
    code = error.code if isinstance(error, SystemExit) else error
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


@coroutine
def watched(body: Coroutine[Any, Any, T], process: int) -> Generator[Any, Any, T]:
    """Await *body*, and end each child that it forks before the event loop gets control there."""
    send, value = body.send, None
    while True:
        leave_if_forked(process)
        try:
            waits_for = send(value)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            leave_if_forked(process)
        send, value = body.send, None
        try:
            value = yield waits_for
        except BaseException as error:
            send, value = body.throw, error
