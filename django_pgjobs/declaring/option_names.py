"""Options and methods that we do not have under this name, and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

# Each is of one enqueue, so only .using() takes it.
OF_JOBS = ("run_after", "after", "after_failure", "subject")
# They are read where the task is declared or runs, so only @task takes them.
OF_DECLARATIONS = (
    "atomic",
    "backoff",
    "discard_on",
    "remote",
    "resets_session",
    "retry_on",
    "schedulable",
    "schedule",
    "takes_context",
)
# What other libraries call an option of ours.
SYNONYMS = {
    "autoretry_for": "retry_on",
    "bind": "takes_context",
    "concurrency": "concurrency_limit",
    "countdown": "run_after",
    "cron": "schedule",
    "default_retry_delay": "backoff",
    "delay": "run_after",
    "dont_autoretry_for": "discard_on",
    "eta": "run_after",
    "execution_timeout": "timeout",
    "link_error": "on_failure",
    "lock": "concurrency_key",
    "max_age": "expires",
    "max_retries": "max_attempts",
    "queue": "queue_name",
    "queueing_lock": "unique_key",
    "retries": "max_attempts",
    "retry": "max_attempts",
    "retry_backoff": "backoff",
    "retry_delay": "backoff",
    "schedule_at": "run_after",
    "schedule_in": "run_after",
    "scheduled_at": "run_after",
    "soft_time_limit": "timeout",
    "throws": "discard_on",
    "time_limit": "timeout",
    "unique": "unique_key",
    "wait": "run_after",
    "wait_until": "run_after",
}
# What other libraries call what we write so, of a task, a result, a call and a batch. No name of
# django.tasks may be among them.
OF_TASKS = {
    "apply": ".call(...)",
    "apply_async": ".using(...).enqueue(...)",
    "defer": ".enqueue(...)",
    "delay": ".enqueue(...)",
    "retry": "raise Retry(...)",
    "run": ".call(...)",
    "send": ".enqueue(...)",
    "si": ".s(...), given to then()",
    "signature": ".s(...)",
    "update_state": "current_job().progress(...)",
}
OF_RESULTS = {
    "cancel": "cancel(result)",
    "get": ".wait(timeout).return_value",
    "ready": ".is_finished, after .refresh()",
    "result": ".return_value",
    "revoke": "cancel(result)",
    "state": ".status",
    "task_id": ".id",
}

ENQUEUED_BY = "task.enqueue(...) with the arguments, or group([call])"
OF_CALLS = {
    "apply_async": ENQUEUED_BY,
    "delay": ENQUEUED_BY,
    "enqueue": ENQUEUED_BY,
    "set": "task.using(...).s(...)",
    "using": "task.using(...).s(...)",
}
OPENED_BY = "chain(...) or group(...) alone, which enqueue it"
OF_BATCHES = {
    "apply_async": OPENED_BY,
    "delay": OPENED_BY,
    "get": ".wait(timeout).results()",
    "ready": ".explain().is_complete",
}


class TaskNames:
    """A task, which says what it calls a method of others."""

    __slots__ = ()

    if not TYPE_CHECKING:  # else every name would pass a type checker

        def __getattr__(self, name: str) -> Any:
            return _attribute_of(self, name, OF_TASKS)


class ResultNames:
    """A result, which says what it calls a method of others."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return _attribute_of(self, name, OF_RESULTS)


class CallNames:
    """A call, which says how it is enqueued."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return _attribute_of(self, name, OF_CALLS)


class BatchNames:
    """A batch, which says what it calls a method of others."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return _attribute_of(self, name, OF_BATCHES)


def _attribute_of(holder: object, name: str, known: dict[str, str]) -> Any:
    if name in known:
        said = f"{type(holder).__name__!r} object has no attribute {name!r}. Write {known[name]}."
        # With both Python adds its own "Did you mean".
        raise AttributeError(said, name=name, obj=holder)
    # Once more, for the error that led here: it may say more than that there is none.
    return object.__getattribute__(holder, name)


def check_names(taker: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise TypeError if *taker*, "@task" or ".using()", is given an option that is not known."""
    unknown = sorted(set(given) - set(known))
    for name in unknown:
        remedy = _remedy_for(name, known)
        if remedy:
            raise TypeError(f"{taker} does not take {name}; {remedy}.")
    if unknown:
        raise TypeError(f"{taker} got {unknown_options(unknown, known)}")


def unknown_options(unknown: Sequence[str], known: Collection[str]) -> str:
    """Return what is said of options that nobody knows, with what may be meant as the first."""
    near = difflib.get_close_matches(unknown[0], known, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    return f"unknown options {unknown}.{meant} Expected some of {sorted(known)}."


def _remedy_for(name: str, known: Collection[str]) -> str:
    """Return what to write instead of an option, "" if nobody knows."""
    ours = SYNONYMS.get(name, name)
    if ours in known:
        return f"use {ours}"
    if ours in OF_JOBS:
        return f"use .using({ours}=...)"
    return f"declare it with the task: @task({ours}=...)" if ours in OF_DECLARATIONS else ""
