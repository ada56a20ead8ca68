"""Tasks of a project that names a database when it meets the first job of a tenant."""

from __future__ import annotations

from typing import Any

from django.db import connections

from django_pgjobs import task

ALIAS = "tenant"


def connection_of_tenant() -> Any:
    """Return its connection, also if this is the first time that it is named."""
    if ALIAS not in connections.settings:
        connections.settings[ALIAS] = {**connections.settings["default"]}
    return connections[ALIAS]


@task
def leave_transaction_open() -> None:
    """Begin to write, and end in the midst of it."""
    connection = connection_of_tenant()
    connection.set_autocommit(False)
    with connection.cursor() as cursor:
        cursor.execute("SET application_name = 'left'")


@task
def look(*, renames: bool = False) -> list[Any]:
    """Return what the session of the tenant is like, and perhaps replace its connection."""
    connection = connection_of_tenant()
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('application_name'), pg_backend_pid()")
        [(name, pid)] = cursor.fetchall()
    found = [connection.get_autocommit(), name, pid]
    if renames:
        connection.close()
        del connections[ALIAS]
        connections.settings[ALIAS] = {**connections.settings["default"], "CONN_MAX_AGE": None}
    return found
