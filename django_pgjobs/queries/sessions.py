"""Sessions that jobs use: noticing traces, and bringing them back to the state of a new one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import sql

from django_pgjobs.queries.cursor import Cursor

# DISCARD ALL would also drop prepared statements, which the driver counts on.
RESET_SESSION = (
    "RESET ALL; RESET SESSION AUTHORIZATION; SELECT pg_advisory_unlock_all();"
    " UNLISTEN *; CLOSE ALL; DISCARD TEMP"
)


def reset_session(
    connection: psycopg.Connection[Any], *, time_zone: str | None, role: str | None
) -> None:
    """Undo what SQL can do to a session, then set what Django sets on a new one.

    *time_zone* and *role* are those of the project's settings. All in one round trip.
    """
    statements: list[sql.Composable] = [sql.SQL(RESET_SESSION)]
    if time_zone:
        statements.append(sql.SQL("SET TimeZone TO {}").format(sql.Literal(time_zone)))
    if role:
        statements.append(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    connection.execute(sql.SQL("; ").join(statements), prepare=False)


def set_jit(cursor: Cursor, value: str) -> str:
    """Set whether the session compiles statements; return what was set before."""
    cursor.execute("SELECT current_setting('jit'), set_config('jit', %s, FALSE)", [value])
    [(before, _)] = cursor.fetchall()
    return str(before)


# Statements that leave a session as it was, by their first word, ...
PLAIN = re.compile(
    r"\s*(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES|SAVEPOINT|RELEASE|ROLLBACK TO)\b",
    re.IGNORECASE,
)
# ... unless they speak of something that does not.
TELLING = re.compile(r"set_config|advisory|\btemp|pg_temp", re.IGNORECASE)
# A SELECT from nothing is a call, perhaps of a function of the project's own that sets or locks.
CALL = re.compile(r"\s*SELECT\b(?!.*\bFROM\b).*\(", re.IGNORECASE | re.DOTALL)


def leaves_traces(query: object) -> bool:
    """May the statement change more than rows: a setting, a lock, a temporary table?

    What a function of the project's own does inside the database cannot be seen from here, so
    a statement that does nothing but call one may.
    """
    text = query.decode("utf-8", "replace") if isinstance(query, bytes) else query
    return not isinstance(text, str) or _text_leaves_traces(text)


# The ORM sends the same few texts again and again.
@lru_cache(maxsize=256)
def _text_leaves_traces(text: str) -> bool:
    is_plain = PLAIN.match(text) is not None and CALL.match(text) is None
    return not is_plain or TELLING.search(text) is not None


class Usage:
    """Notes whether a statement that may leave traces was sent over a driver's connection.

    It watches the driver's cursors, so it sees what goes past Django as well.
    """

    def __init__(self, connection: Any) -> None:
        """Watch the driver's connection that Django's *connection* has now."""
        self.needs_reset = False
        self._iterators = _count_iterators(connection)
        raw = connection.connection
        usage, base = self, raw.cursor_factory

        class WatchedCursor(base):  # type: ignore[misc, valid-type]
            def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
                usage.needs_reset = usage.needs_reset or leaves_traces(query)
                return super().execute(query, *args, **kwargs)

        raw.cursor_factory = WatchedCursor

    def note_iterators(self, connection: Any) -> None:
        """Note whether a QuerySet.iterator() has opened a cursor in the server."""
        opened = _count_iterators(connection)
        self.needs_reset = self.needs_reset or opened != self._iterators
        self._iterators = opened


def _count_iterators(connection: Any) -> int:
    return getattr(connection, "_named_cursor_idx", 0)
