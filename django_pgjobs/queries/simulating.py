"""Statements of the clock of tests: no worker sends them."""

from __future__ import annotations

from django_pgjobs.queries.cursor import Cursor, execute, fetch


def pass_time(cursor: Cursor, seconds: float) -> None:
    """Let pauses and tokens be so much older."""
    execute(cursor, "pass_time", {"seconds": seconds})


def get_due_wait(cursor: Cursor) -> float | None:
    """Return in how many seconds a job is due, None if none waits for a time."""
    [(seconds,)] = fetch(cursor, "get_due_wait", {})
    return None if seconds is None else float(seconds)
