"""Statements of the clock of tests: no worker sends them."""

from __future__ import annotations

from datetime import datetime

from django_pgjobs.queries.cursor import Cursor, execute, fetch


def pass_time(cursor: Cursor, seconds: float) -> None:
    """Let pauses and tokens be so much older."""
    execute(cursor, "pass_time", {"seconds": seconds})


def give_time_back(cursor: Cursor, *, read_at: datetime, now: datetime) -> None:
    """Let the time between two readings of the server's clock not have passed for them."""
    execute(cursor, "give_time_back", {"read_at": read_at, "now": now})


def get_due_wait(cursor: Cursor, now: datetime) -> float | None:
    """Return how many seconds after *now* a job is due, None if none waits for a time."""
    [(seconds,)] = fetch(cursor, "get_due_wait", {"now": now})
    return None if seconds is None else float(seconds)
