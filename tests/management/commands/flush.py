"""Empty the tables after a test that commits: a few milliseconds instead of a hundred.

Django's own command truncates every table and creates permissions and content types again;
this one touches only the tables with rows, leaves those two alone, and knows the partitioned
table of jobs, which Django does not manage.
"""

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush
from django.db import OperationalError, connections

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
  AND table_class.relname <> ALL(%s)
"""
END_OTHERS = """
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


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
