"""Where a running job is: the stack of its thread, or of its asyncio task, from another thread.

It shows files, lines and functions, and no values. The code goes on meanwhile, so lines may be of
different moments.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

from django_pgjobs.values.payload import scrub
from django_pgjobs.worker.attempt import Attempt

# How many of the outermost and of the innermost frames are shown; a recursion has more.
OUTER, INNER = 20, 80
# Awaited things that are followed: they are a chain, unless they change while it is read.
MAX_AWAITED = 1_000
MAX_NAME = 300
# What calls tasks, and is none of them: the worker, and the package of tasks.
WORKER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
CALLERS = (os.path.join("tasks", "base.py"), os.path.join("django_tasks", "base.py"))

Line = tuple[str, int, str]


def stack_of(attempt: Attempt) -> str:
    """Return where a job is, the innermost call last; "" if it has not begun, or is ending."""
    found = attempt.whereabouts()
    if found is None:
        return ""
    thread_id, body = found
    lines = _of_thread(thread_id) if body is None else _of_coroutine(body, thread_id)
    return "\n".join(_shown(_without_worker(lines)))


def stack_of_thread(thread_id: int) -> str:
    """Return where a thread is in what the worker calls, the innermost call last."""
    return "\n".join(_shown(_without_worker(_of_thread(thread_id))))


def _of_thread(thread_id: int) -> list[Line]:
    frame = sys._current_frames().get(thread_id)
    lines = []
    while frame is not None:
        lines.append(_line_of(frame))
        frame = frame.f_back
    return lines[::-1]


def _of_coroutine(awaited: Any, thread_id: int) -> list[Line]:
    """Return the chain of what is awaited; if the loop is in it just now, the loop's thread."""
    lines = []
    for _ in range(MAX_AWAITED):
        frame = _read(awaited, "cr_frame", "gi_frame", "ag_frame")
        if type(frame) is not FrameType:
            break
        if _read(awaited, "cr_running", "gi_running", "ag_running") is True:
            return _of_thread(thread_id)
        lines.append(_line_of(frame))
        awaited = _read(awaited, "cr_await", "gi_yieldfrom", "ag_await")
    return lines


def _read(thing: Any, *names: str) -> Any:
    """Return the first of these attributes that is there, as the interpreter keeps it, or None.

    Anything can be awaited: attributes that are code of a project's own may raise, or never return
    while the worker's lease waits for them.
    """
    for name in names:
        found = inspect.getattr_static(type(thing), name, None)
        if isinstance(found, GetSetDescriptorType | MemberDescriptorType):
            with suppress(AttributeError):  # an empty slot
                return found.__get__(thing)
    return None


def _line_of(frame: FrameType) -> Line:
    code = frame.f_code
    return code.co_filename, frame.f_lineno or 0, code.co_qualname


def _without_worker(lines: list[Line]) -> list[Line]:
    """Leave out what leads from the start of the thread to the task."""
    ours = [place for place, line in enumerate(lines) if line[0].startswith(WORKER)]
    inside = lines[ours[-1] + 1 :] if ours else lines
    while inside and inside[0][0].endswith(CALLERS):
        inside = inside[1:]
    return inside or lines


def _shown(lines: list[Line]) -> Iterable[str]:
    left_out = len(lines) - OUTER - INNER
    for place, (filename, number, name) in enumerate(lines):
        if left_out > 0 and place == OUTER:
            yield f"  ... {left_out} more"
        if left_out <= 0 or place < OUTER or place >= OUTER + left_out:
            yield f'  File "{scrub(filename, MAX_NAME)}", line {number}, in {scrub(name, MAX_NAME)}'
