"""Pausing and resuming what workers claim: a queue, a task, a concurrency key.

A pause is a row, which every claim reads in its own statement, so no claim that begins after
the commit of `pause` takes a paused job. The commit notifies workers, which give back claimed
jobs that have not begun; running jobs go on.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Never

from asgiref.sync import sync_to_async

from django_pgjobs.queries import control, notifications
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.status import PauseKind
from django_pgjobs.values.bounds import MAX_KEY_BYTES, MAX_QUEUE_NAME_BYTES
from django_pgjobs.values.given import instant_or_delay
from django_pgjobs.values.moments import given_in_words
from django_pgjobs.values.payload import is_storable, quoted, shorten
from django_pgjobs.values.twins import has_async_twin

# Characters of a reason, or of a name, that somebody gives: both are on pages and in lists.
MAX_REASON = 500


@has_async_twin
def pause(
    *unnamed: Never,
    queue: str | None = None,
    task: Any = None,
    key: str | None = None,
    reason: str = "",
    by: str = "",
    until: datetime | timedelta | None = None,
) -> bool:
    """Pause a queue, a task, or a concurrency key: no worker starts its jobs.

    Give exactly one: *task* is a task or its path, *key* a key or a pattern such as "shop:*".
    With *until*, an instant or a duration from now, the pause ends by itself. Pausing again
    changes who, why and the end. Return whether anything changed. Runs in the caller's
    transaction: the pause takes effect at its commit.

    Raise TypeError or ValueError, before anything is sent, for what is not exactly one such
    target, for a name that is not one line of a name's length, for a *reason* or *by* of more
    than 500 characters, and for an end that is over.
    """
    kind, name = _target("pause", unnamed, queue, task, key)
    for argument, text in (("reason", reason), ("by", by)):
        _check_text(argument, text)
        if len(text) > MAX_REASON:
            raise ValueError(
                f"pause() expected {argument}= of at most {MAX_REASON} characters, got {len(text)}."
            )
    resume_at, delay = _end_of_pause(until)
    with job_cursor() as cursor:
        changed = control.pause_jobs(
            cursor, kind, name, reason=reason, paused_by=by, resume_at=resume_at, delay=delay
        )
        if changed:
            notifications.notify_of_control(cursor)
    return changed


@has_async_twin
def resume(
    *unnamed: Never, queue: str | None = None, task: Any = None, key: str | None = None
) -> bool:
    """End the pause of a queue, a task, or a concurrency key, named exactly as in `pause`.

    Return False if there was no such pause, or it had ended. Runs in the caller's transaction:
    idle workers look for jobs at its commit.
    """
    kind, name = _target("resume", unnamed, queue, task, key)
    with job_cursor() as cursor:
        changed = control.resume_jobs(cursor, kind, name)
        if changed:
            notifications.notify_of_control(cursor)
    return changed


apause = sync_to_async(pause, thread_sensitive=True)
aresume = sync_to_async(resume, thread_sensitive=True)


def _target(
    function: str, unnamed: tuple[Any, ...], queue: str | None, task: Any, key: str | None
) -> tuple[PauseKind, str]:
    """Return what was named; raise TypeError or ValueError if that is not exactly one thing."""
    if unnamed:
        raise _unnamed(function, unnamed[0])
    given = {PauseKind.QUEUE: queue, PauseKind.TASK: task, PauseKind.KEY: key}
    named = [(kind, value) for kind, value in given.items() if value is not None]
    if len(named) != 1:
        said = ", ".join(kind.value for kind, _ in named) or "none"
        raise TypeError(f"{function}() expected one of queue=, task= and key=, got {said}.")
    [(kind, value)] = named
    name = getattr(value, "module_path", value) if kind is PauseKind.TASK else value
    _check_text(kind.value, name, "a task or its path" if kind is PauseKind.TASK else "text")
    most = MAX_QUEUE_NAME_BYTES if kind is PauseKind.QUEUE else MAX_KEY_BYTES
    if not 1 <= len(name.encode()) <= most or "\n" in name or "\r" in name:
        raise ValueError(
            f"{function}() expected {kind.value}= to be one line of 1 to {most} bytes, got "
            f"{shorten(quoted(value))}."
        )
    if kind is not PauseKind.KEY and "*" in name:
        raise ValueError(
            f"{function}() expected the whole name of one {kind.value}, got {value!r}. "
            "Only keys have patterns."
        )
    return kind, name


def _unnamed(function: str, value: object) -> TypeError:
    path = getattr(value, "module_path", None)
    shown, kind = (shorten(quoted(value)), "queue") if path is None else (path, "task")
    named = shown if isinstance(value, str) or path is not None else "..."
    others = " or ".join(f"{each.value}=" for each in PauseKind if each.value != kind)
    return TypeError(
        f"{function}() takes what to {function} by name, got {shown}. Write "
        f"{function}({kind}={named}), or {others}."
    )


def _check_text(name: str, value: object, expected: str = "text") -> None:
    if not isinstance(value, str):
        raise TypeError(f"expected {name}= to be {expected}, got {shorten(quoted(value))}.")
    if not is_storable(value):
        raise ValueError(
            f"expected {name}= without NUL and unpaired surrogates, got {shorten(quoted(value))}."
        )


def _end_of_pause(until: datetime | timedelta | None) -> tuple[datetime | None, float | None]:
    """Return the end as an instant or as seconds from now; raise ValueError if it is over."""
    if not (isinstance(until, timedelta) and until <= timedelta()):
        resume_at, delay = instant_or_delay(until, name="until")
        if resume_at is None or resume_at > datetime.now(UTC):
            return resume_at, delay
    said = given_in_words(until)
    raise ValueError(f"expected until in the future, got {said}. Use resume() to end a pause.")
