"""The cursors that statement functions get, and the SQL files, which are read once.

Statements name the schema of our tables where it is known: on own connections, which look it up
when they are opened, and in the process of a worker, whose jobs may change their search path.

The worker's own connections give raw cursors, which take a statement as the server does. psycopg
does not remember how it translated a statement of more than 4,096 characters; we do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol

from psycopg import DataError, RawCursor, adapters
from psycopg.abc import AdaptContext
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.types.datetime import TimestamptzLoader

from django_pgjobs.sql import load, qualified
from django_pgjobs.sql.terms import written_out
from django_pgjobs.values.payload import EARLIEST, LATEST

# The number of the type of times in PostgreSQL.
TIMESTAMPTZ = 1184
# psycopg's own, which is compiled where its extension is installed.
ZONED_LOADER = adapters.get_loader(TIMESTAMPTZ, Format.TEXT) or TimestamptzLoader
PLACEHOLDER = re.compile(r"%(?:%|\((\w+)\)s)")


class Cursor(Protocol):
    """The part of a cursor that psycopg and Django share."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, query: Any, params: Any = None, /) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class OwnCursor(RawCursor[tuple[Any, ...]]):
    """A cursor of one of our own connections, and the *schema* of our tables if there is one."""

    schema: str | None = None


class Process:
    """Settings for the statements of this process on Django's connections."""

    schema: str | None = None


def name_schema(schema: str | None) -> None:
    """Let statements on Django's connections find our tables in *schema* from now on.

    A worker does so: a job may have changed its search path when it enqueues or is finished.
    """
    Process.schema = schema


@cache
def statement(name: str, *, schema: str | None = None) -> str:
    """Return the statement as it is sent, with the *schema* of our tables if it is known."""
    return qualified(load(name), schema)


@cache
def raw_statement(name: str, *, schema: str | None = None) -> tuple[bytes, list[str]]:
    """Return a statement with numbers for its parameters, and their names in that order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%"
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return PLACEHOLDER.sub(number, qualified(load(name), schema)).encode(), names


def process_statement(name: str) -> str:
    """Return a statement for Django's connection in this process."""
    return statement(name, schema=Process.schema)


def process_text(text: str) -> str:
    """Return a part of a composed statement, terms in full, for Django's connection here."""
    return qualified(written_out(text), Process.schema)


def execute(cursor: Cursor, name: str, params: Mapping[str, Any]) -> None:
    """Send statement *name*; a pipeline gives its rows later."""
    if isinstance(cursor, RawCursor):
        schema = cursor.schema if isinstance(cursor, OwnCursor) else Process.schema
        text, names = raw_statement(name, schema=schema)
        cursor.execute(text, [params[name] for name in names])
    else:
        read_any_instant(cursor)
        cursor.execute(statement(name, schema=Process.schema), params)


def read_any_instant(cursor: Any) -> None:
    """Let a cursor of Django's read any time as an instant in UTC, whatever USE_TZ is."""
    if cursor.adapters.get_loader(TIMESTAMPTZ, Format.TEXT) is not InstantLoader:
        cursor.adapters.register_loader(TIMESTAMPTZ, InstantLoader)


class InstantLoader(Loader):
    """Reads times with their zone, and one that Python has no datetime for as the nearest.

    With USE_TZ = False Django's own cuts the zone off. And rows of raw SQL may hold infinity, or
    the year 20000, for which psycopg raises, so that the whole answer is lost.
    """

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._load = ZONED_LOADER(oid, context).load

    def load(self, data: Any) -> datetime:
        """Return the instant in UTC."""
        try:
            instant: datetime = self._load(data)
            return instant.astimezone(UTC)
        except (DataError, OverflowError):
            text = bytes(data)
            is_early = text.startswith((b"-", b"0001-")) or text.endswith(b"BC")
            return EARLIEST if is_early else LATEST


def fetch(cursor: Cursor, name: str, params: Mapping[str, Any]) -> list[Any]:
    """Send statement *name* and return its rows as tuples."""
    execute(cursor, name, params)
    return cursor.fetchall()


def decoded(value: Any) -> Any:
    """Return JSON as Python; which connections decode it themselves is a setting of theirs."""
    return json.loads(value) if isinstance(value, str) else value
