"""What every statement function is given, and the reading of SQL files once.

The worker's own connections give raw cursors, which take a statement as the server does. psycopg
does not remember how it translated a statement of more than 4,096 characters; we do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from psycopg import RawCursor

from django_pgjobs.sql import load

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
        cursor.execute(statement(name, *left_out), params)


def fetch(cursor: Cursor, name: str, params: Mapping[str, Any], *left_out: str) -> list[Any]:
    """Send statement *name* without the sections *left out* and return its rows as tuples."""
    execute(cursor, name, params, *left_out)
    return cursor.fetchall()
