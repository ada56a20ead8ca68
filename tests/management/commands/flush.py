"""Empty the tables after a test that commits: a few milliseconds instead of a hundred.

Django's own command truncates every table and creates permissions and content types again;
this one touches only the tables with rows, leaves those two alone, and knows the partitioned
table of jobs, which Django does not manage.
"""

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush
from django.db import Error, OperationalError, connections

KEPT = ("django_migrations", "django_content_type", "auth_permission")
# Somebody still has a transaction open: a leftover of the test, to be ended, not waited for.
LOCK_TIMEOUT = "3s"
FEW_ROWS = 200

TABLES = """
SELECT table_class.oid::regclass::text, table_class.relname
FROM pg_catalog.pg_class AS table_class
WHERE table_class.relnamespace = 'public'::regnamespace
  AND table_class.relkind IN ('r', 'p')
  AND NOT table_class.relispartition
  AND (table_class.relkind = 'p' OR pg_catalog.pg_relation_size(table_class.oid) > 0)
  AND table_class.relname <> ALL(%s)
"""
END_OTHERS = """
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""

# The server process of the session that `renew_sessions` has opened last.
_kept: list[int] = []


class Command(flush.Command):
    """What `TransactionTestCase` calls after each test."""

    def handle(self, **options: Any) -> None:
        connection = connections[options["database"]]
        try:
            empty_tables(options["database"])
        except OperationalError:
            # Waited too long for a lock, or the test cut the connection.
            connection.close()
            with connection.cursor() as cursor:
                cursor.execute(END_OTHERS)
            empty_tables(options["database"])


def empty_tables(alias: str = "default") -> None:
    """Delete all rows but those of KEPT, in one transaction."""
    with connections[alias].cursor() as cursor:
        cursor.execute(TABLES, [list(KEPT)])
        tables = [row[0] for row in cursor.fetchall()]
        counts = " UNION ALL ".join(
            f"SELECT '{table}', count(*) FROM (SELECT FROM {table} LIMIT {FEW_ROWS}) AS few"
            for table in tables
        )
        cursor.execute(counts)
        used = dict(cursor.fetchall())
        statements = ["BEGIN", f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"]
        many = [table for table, rows in used.items() if rows >= FEW_ROWS]
        few = [table for table, rows in used.items() if 0 < rows < FEW_ROWS]
        # One by one: what belongs to batches is truncated by a trigger of theirs.
        statements += [f"TRUNCATE {table} CASCADE" for table in many]
        statements += [f"DELETE FROM {table}" for table in few]
        statements += ["SET CONSTRAINTS ALL IMMEDIATE", "COMMIT"]
        if many or few:
            cursor.execute("; ".join(statements))


def renew_sessions() -> None:
    """Close the sessions of a test, but keep that of the test database, as if it were new.

    A new one costs the server ten milliseconds, because it has to read the catalog of all tables.
    One that the test has opened goes: other settings may have held then.
    """
    for connection in connections.all(initialized_only=True):
        session = connection.connection
        if session is None or [session.info.backend_pid] != _kept:
            connection.close()
    connection = connections["default"]
    try:
        if connection.connection:
            with connection.cursor() as cursor:
                cursor.execute("DISCARD ALL")
            connection.init_connection_state()
    except Error:
        connection.close()
    connection.ensure_connection()
    _kept[:] = [connection.connection.info.backend_pid]
