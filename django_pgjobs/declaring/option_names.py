"""Options that `@task` or `.using()` does not take, and what to write instead."""

from __future__ import annotations

from collections.abc import Collection

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
    "countdown": "run_after",
    "delay": "run_after",
    "eta": "run_after",
    "max_retries": "max_attempts",
    "queue": "queue_name",
}


def check_names(taker: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise TypeError if *taker*, "@task" or ".using()", is given an option that is not known."""
    unknown = sorted(set(given) - set(known))
    for name in unknown:
        remedy = _remedy_for(name, known)
        if remedy:
            raise TypeError(f"{taker} does not take {name}; {remedy}.")
    if unknown:
        raise TypeError(f"{taker} got unknown options {unknown}; expected some of {sorted(known)}.")


def _remedy_for(name: str, known: Collection[str]) -> str:
    """Return what to write instead of an option, "" if nobody knows."""
    ours = SYNONYMS.get(name, name)
    if ours in known:
        return f"use {ours}"
    if ours in OF_JOBS:
        return f"use .using({ours}=...)"
    return f"declare it with the task: @task({ours}=...)" if ours in OF_DECLARATIONS else ""
