"""What a worker wants to know of the server before it starts."""

from __future__ import annotations

from typing import NamedTuple

from django_pgjobs.exceptions import ServerUnreachable
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import fetch


class Server(NamedTuple):
    """The server behind a connection; *queues* are those with jobs that may run now."""

    version: str
    database: str
    is_direct: bool
    queues: list[str]


def describe_server(connection: OwnConnection) -> Server:
    """Return what the server is.

    Raise psycopg.OperationalError if it cannot be reached, and ServerUnreachable if the
    tables are not there.
    """
    with connection.cursor() as cursor:
        [(version, database, has_table)] = fetch(cursor, "describe_server", {})
        if not has_table:
            raise ServerUnreachable(f"the database {database!r} has no table pgjobs_job.")
        queues = sorted(
            {row[1] for row in fetch(cursor, "list_ready_lanes", {"with_lowest": False})}
        )
    server = Server(version.split()[0], database, connection.is_direct, queues)
    connection.close()
    return server
