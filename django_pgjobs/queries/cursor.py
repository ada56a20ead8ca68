"""What every statement function is given, and the reading of SQL files once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from django_pgjobs.sql import load


class Cursor(Protocol):
    """The part of a cursor that psycopg and Django share."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, query: Any, params: Any = None, /) -> Any: ...

    def fetchall(self) -> list[Any]: ...


statement = cache(load)


def execute(cursor: Cursor, name: str, params: Mapping[str, Any]) -> None:
    """Send statement *name*; a pipelined cursor gives its rows later."""
    cursor.execute(statement(name), params)


def fetch(cursor: Cursor, name: str, params: Mapping[str, Any]) -> list[Any]:
    """Send statement *name* and return its rows as tuples."""
    cursor.execute(statement(name), params)
    return cursor.fetchall()
