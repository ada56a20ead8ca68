"""What a worker checks of the server before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from django.db import connections

from django_pgjobs.exceptions import ServerUnreachable
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor, fetch
from django_pgjobs.queries.own_settings import TRANSPORT


class Server(NamedTuple):
    """The server behind a connection; *queues* are those with jobs that may run now.

    It has room for *free* more connections.
    """

    version: str
    database: str
    is_direct: bool
    queues: list[str]
    free: int


class Schema(NamedTuple):
    """What the code needs of the database: columns by table, migrations by name."""

    columns: Mapping[str, Sequence[str]]
    migrations: Sequence[str]


def describe_server(connection: OwnConnection, schema: Schema) -> Server:
    """Return what the server is, and close the connection.

    Raise psycopg.OperationalError if it cannot be reached or takes no writes, and
    ServerUnreachable if it does not have the *schema*.
    """
    with closing(connection), connection.cursor() as cursor:
        [(version, database, has_table, has_record, free)] = fetch(cursor, "describe_server", {})
        if not has_table:
            raise ServerUnreachable(f"the database {database!r} has no table pgjobs_job.")
        # A role that may do what a worker does need not be allowed to read the record.
        applied = fetch(cursor, "list_applied_migrations", {}) if has_record else None
        _check_schema(cursor, database, schema, applied)
        queues = sorted(
            {row[1] for row in fetch(cursor, "list_ready_lanes", {"with_lowest": False})}
        )
    return Server(version.split()[0], database, connection.is_direct, queues, free)


def is_read_only(alias: str) -> bool:
    """Do the connections of Django that jobs use write nothing, unlike our own?

    Raise Django's OperationalError if none can be opened.
    """
    connection = connections[alias].copy()
    options = connection.settings_dict["OPTIONS"]
    # One connection needs no pool, and a start waits as long for it as for our own.
    options.pop("pool", None)
    options.setdefault("connect_timeout", TRANSPORT["connect_timeout"])
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_catalog.current_setting('transaction_read_only')::boolean")
            return bool(cursor.fetchone()[0])
    finally:
        connection.close()


def _check_schema(
    cursor: Cursor, database: str, schema: Schema, applied: list[tuple[str]] | None
) -> None:
    missing = sorted(set(schema.migrations) - {name for (name,) in applied or ()})
    if applied is not None and missing:
        names = ", ".join(f"pgjobs.{name}" for name in missing)
        raise ServerUnreachable(
            f"the database {database!r} is behind this version of the code: not applied: {names}."
        )
    wanted = [(table, name) for table, names in schema.columns.items() for name in names]
    tables, columns = zip(*wanted, strict=True)
    absent = fetch(
        cursor, "find_missing_columns", {"tables": list(tables), "columns": list(columns)}
    )
    if absent:
        names = ", ".join(f"{table}.{column}" for table, column in absent[:5])
        names += f" and {len(absent) - 5} more" if len(absent) > 5 else ""
        raise ServerUnreachable(
            f"the database {database!r} is behind this version of the code: no column {names}."
        )
