"""Statements of migrations beside running workers: limits of waits, and who blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled

from django_pgjobs.queries.cursor import Cursor, fetch

# What ends a statement that has waited too long.
GAVE_UP = (LockNotAvailable, QueryCanceled, DeadlockDetected)


class Blocker(NamedTuple):
    """A session that another one waits for; what the role may not see is None."""

    pid: int
    application: str | None
    state: str | None
    seconds: float | None
    query: str | None


@contextmanager
def another_session(connection: Any) -> Iterator[Cursor]:
    """Give a cursor of a new session in the database of one of Django's connections."""
    own = connection.copy()
    try:
        with own.cursor() as cursor:
            yield cursor
    finally:
        own.close()


def list_blockers(cursor: Cursor, pid: int) -> list[Blocker]:
    """Return the sessions that the session *pid* waits for, the oldest transaction first."""
    return [Blocker._make(row) for row in fetch(cursor, "list_blockers", {"pid": pid})]


def limit_waits(
    cursor: Cursor,
    seconds: float,
    *,
    lock_seconds: float | None = None,
    still_seconds: float | None = None,
) -> int:
    """Let no statement of this transaction run for longer; return the session's pid.

    Nor wait for a lock for longer than *lock_seconds*, by default the same. The server ends the
    session if it sends nothing for *still_seconds*, by default for as long as is set.
    """
    timeout = _milliseconds(seconds)
    lock_timeout = timeout if lock_seconds is None else _milliseconds(lock_seconds)
    idle_timeout = None if still_seconds is None else _milliseconds(still_seconds)
    [(pid, *_)] = _set_timeouts(
        cursor, lock_timeout, timeout, idle_timeout=idle_timeout, is_local=True
    )
    return int(pid)


@contextmanager
def unlimited_waits(cursor: Cursor) -> Iterator[int]:
    """Let statements of this session take as long as they need; give the session's pid."""
    [(pid, lock_timeout, statement_timeout, *_)] = _set_timeouts(cursor, "0", "0", is_local=False)
    try:
        yield int(pid)
    finally:
        _set_timeouts(cursor, lock_timeout, statement_timeout, is_local=False)


def is_index_valid(cursor: Cursor, name: str) -> bool | None:
    """Return whether the index is complete, None if there is none of that name."""
    rows = fetch(cursor, "get_index_state", {"name": name})
    return bool(rows[0][0]) if rows else None


def _milliseconds(seconds: float) -> str:
    return f"{int(seconds * 1000)}ms"


def _set_timeouts(
    cursor: Cursor,
    lock_timeout: str,
    statement_timeout: str,
    *,
    idle_timeout: str | None = None,
    is_local: bool,
) -> list[tuple[int, str, str]]:
    params = {
        "lock_timeout": lock_timeout,
        "statement_timeout": statement_timeout,
        "idle_timeout": idle_timeout,
        "is_local": is_local,
    }
    return fetch(cursor, "set_timeouts", params)
