"""What a task may declare about when its jobs start: each option alone, and against the others."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django_pgjobs.conf import is_dotted
from django_pgjobs.declaring.keys import find_key_problems
from django_pgjobs.declaring.registry import is_task
from django_pgjobs.declaring.signatures import signature_of
from django_pgjobs.values.bounds import COUNT, is_count, is_number
from django_pgjobs.values.given import LONGEST_SPAN
from django_pgjobs.values.payload import quoted, shorten

# What other libraries take for a rate: ten a minute.
RATE = re.compile(r"[0-9]+/[smh]")
ORDERINGS = ("block", "skip")
CONFLICTS = ("return", "raise", "replace", "merge")
UNTIL = ("finished", "claimed")
MERGES = ("union", "append", "last")
AFTER_FAILURES = ("cancel", "run", "hold")


def is_path(value: object) -> bool:
    """Does *value* read like the dotted path of something in a module?"""
    return isinstance(value, str) and "." in value and is_dotted(value)


def is_duration(value: object) -> bool:
    """Is *value* a positive number of seconds, up to 1000 years?"""
    return is_number(value) and 0 < value <= LONGEST_SPAN.total_seconds()


def find_function_problems(function: Any) -> Iterator[str]:
    """Yield what is wrong with what a task is made of."""
    if inspect.isfunction(function):
        return
    if is_task(function):
        path = function.module_path
        yield (
            f"expected a module-level function, got {path}, which is a task. Other options for "
            f"it are {path}.using(...)."
        )
        return
    said = f"expected a module-level function, got {shorten(quoted(function))}."
    is_option = not callable(function)
    yield f"{said} Options have names, as in @task(queue_name='mail')." if is_option else said


def find_flag_problems(task: Any) -> Iterator[str]:
    """Yield which options of *task* are neither True nor False."""
    for name in ("takes_context", "atomic", "resets_session", "schedulable", "remote"):
        value = getattr(task, name)
        if not isinstance(value, bool):
            yield f"expected {name} to be True or False, got {quoted(value)}."


def find_timeout_problems(timeout: object) -> Iterator[str]:
    """Yield what is wrong with the *timeout* of a task."""
    if timeout is not None and not is_duration(timeout):
        yield (
            "expected timeout to be a number of seconds or a timedelta, more than 0, up to 1000 "
            f"years, got {quoted(timeout)}."
        )


def find_control_problems(task: Any) -> Iterator[str]:
    """Yield what is wrong with the options of *task* that control when its jobs start."""
    names = argument_names(task.func, task.takes_context)
    for option in ("concurrency_key", "unique_key"):
        key = getattr(task, option)
        if key is not None:
            yield from find_key_problems(option, key, names)
    for key in task.rate_limit:
        yield from find_key_problems("rate_limit", key, names)
        if isinstance(key, str) and RATE.fullmatch(key):
            yield (
                f"expected rate_limit to be the name of a limit, got the rate {key!r}. Write "
                f"rate_limit={task.func.__name__!r}, and what that allows in "
                f"PGJOBS['RATE_LIMITS'] or the admin."
            )
    if task.concurrency_limit is not None and not is_count(task.concurrency_limit):
        yield f"expected concurrency_limit to be {COUNT}, got {quoted(task.concurrency_limit)}."
    if not is_count(task.rate_cost):
        yield f"expected rate_cost to be {COUNT}, got {quoted(task.rate_cost)}."
    for option, words in (
        ("ordering", ORDERINGS),
        ("on_conflict", CONFLICTS),
        ("after_failure", AFTER_FAILURES),
    ):
        if getattr(task, option) not in words:
            yield f"expected {option} to be one of {words}, got {quoted(getattr(task, option))}."
    yield from _find_unique_problems(task)
    yield from _find_contradictions(task)


def _find_unique_problems(task: Any) -> Iterator[str]:
    if task.unique_until is not None and task.unique_until not in UNTIL:
        yield f"expected unique_until to be one of {UNTIL}, got {quoted(task.unique_until)}."
    merge = task.merge
    if merge is not None and not callable(merge) and merge not in MERGES and not is_path(merge):
        yield (
            f"expected merge to be one of {MERGES}, a function or the dotted path of one, got "
            f"{quoted(merge)}."
        )
    wait = task.max_wait
    seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
    if wait is not None and not is_duration(seconds):
        yield f"expected max_wait to be more than 0 seconds, up to 1000 years, got {quoted(wait)}."


def _find_contradictions(task: Any) -> Iterator[str]:
    changes = task.on_conflict in ("replace", "merge")
    if task.unique_key is None:
        for option, default in (("on_conflict", "return"), ("unique_until", None)):
            if getattr(task, option) != default:
                yield f"{option}={getattr(task, option)!r} has no effect without a unique_key."
    if changes and task.unique_until == "finished":
        yield (
            f"on_conflict={task.on_conflict!r} contradicts unique_until='finished': a "
            "running job is never changed."
        )
    yield from _find_idle_options(task, changes)


def _find_idle_options(task: Any, changes: bool) -> Iterator[str]:
    if task.merge is not None and task.on_conflict != "merge":
        yield "merge has no effect without on_conflict='merge'."
    if task.max_wait is not None and not changes:
        yield "max_wait has no effect without on_conflict='merge' or 'replace'."
    if changes and task.after:
        yield (
            f"after contradicts on_conflict={task.on_conflict!r}: a job that already waits gets "
            "no further predecessors."
        )
    if task.rate_cost != 1 and not task.rate_limit:
        yield "rate_cost has no effect without a rate_limit."
    if task.ordering != "block" and task.concurrency_key is None:
        yield f"ordering={task.ordering!r} has no effect without a concurrency_key."


def argument_names(function: Any, takes_context: bool) -> list[str]:
    """Return the names of a task's arguments, without its context and *args, **kwargs."""
    try:
        return signature_of(function, takes_context).argument_names
    except (TypeError, ValueError):  # no function: another check says so
        return []
