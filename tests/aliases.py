"""Further aliases in DATABASES, for one test: the same server by another name, or a database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from django.db import connections
from psycopg import sql

from tests.helpers import connect


@contextlib.contextmanager
def extra_alias(name: str, **changes: Any) -> Iterator[str]:
    """Add the alias *name*: the settings of `default` with *changes*."""
    connections.settings[name] = {**connections.settings["default"], **changes}
    try:
        # Opened here, because Django's tests refuse to open what they do not know.
        connections[name].connect()
        yield name
    finally:
        connections[name].close()
        del connections[name], connections.settings[name]


@contextlib.contextmanager
def extra_database(name: str, *, encoding: str = "UTF8", **changes: Any) -> Iterator[str]:
    """Create an empty database and an alias of the same *name* for it; drop both at the end."""
    database = sql.Identifier(f"{connections.settings['default']['NAME']}_{name}")
    with connect() as server:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE 'C'")
        server.execute(create.format(database, sql.Literal(encoding)))
        try:
            with extra_alias(name, NAME=database._obj[0], **changes):
                yield name
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(database))


class JobsTo:
    """A router that sends the jobs, and nothing else, to one alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return self.alias if model._meta.app_label == "pgjobs" else None

    db_for_read = db_for_write


class Replica:
    """A router that reads from another alias than it writes to.

    Another connection sees nothing of an open transaction, as one that lags behind.
    """

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return "default"

    def allow_relation(self, *args: Any, **hints: Any) -> bool:
        return True
