"""What every statement function is given, and the reading of SQL files once.

The worker's own connections give raw cursors, which take a statement as the server does. psycopg
does not remember how it translated a statement of more than 4,096 characters; we do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from functools import cache, lru_cache
from typing import Any, Protocol

from psycopg import DataError, RawCursor
from psycopg.pq import Format

from django_pgjobs.payload import EARLIEST, LATEST
from django_pgjobs.sql import load

# The number of the type of times in PostgreSQL.
TIMESTAMPTZ = 1184
PLACEHOLDER = re.compile(r"%(?:%|\((\w+)\)s)")


class Cursor(Protocol):
    """The part of a cursor that psycopg and Django share."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, query: Any, params: Any = None, /) -> Any: ...

    def fetchall(self) -> list[Any]: ...


statement = cache(load)


@cache
def raw_statement(name: str, *left_out: str) -> tuple[bytes, list[str]]:
    """Return a statement with numbers for its parameters, and their names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%"
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return PLACEHOLDER.sub(number, statement(name, *left_out)).encode(), names


def execute(cursor: Cursor, name: str, params: Mapping[str, Any], *left_out: str) -> None:
    """Send statement *name* without the sections *left out*; a pipeline gives its rows later."""
    if isinstance(cursor, RawCursor):
        text, names = raw_statement(name, *left_out)
        cursor.execute(text, [params[name] for name in names])
    else:
        read_any_instant(cursor)
        cursor.execute(statement(name, *left_out), params)


def read_any_instant(cursor: Any) -> None:
    """Let a cursor of Django's read times that Python has no datetime for as the nearest one.

    Rows of raw SQL may hold infinity, or the year 20000; psycopg raises for the whole answer.
    """
    loader = cursor.adapters.get_loader(TIMESTAMPTZ, Format.TEXT)
    if not hasattr(loader, "is_tolerant"):
        cursor.adapters.register_loader(TIMESTAMPTZ, _tolerant(loader))


# Django makes few loaders, one for each time zone of a connection.
@lru_cache(maxsize=16)
def _tolerant(loader: Any) -> Any:
    class TolerantLoader(loader):  # type: ignore[misc]
        is_tolerant = True

        def load(self, data: Any) -> Any:
            try:
                return super().load(data)
            except DataError:
                text = bytes(data)
                is_early = text.startswith(b"-") or text.endswith(b"BC")
                nearest = EARLIEST if is_early else LATEST
                return nearest.replace(tzinfo=getattr(self, "timezone", UTC))

    return TolerantLoader


def fetch(cursor: Cursor, name: str, params: Mapping[str, Any]) -> list[Any]:
    """Send statement *name* and return its rows as tuples."""
    execute(cursor, name, params)
    return cursor.fetchall()
