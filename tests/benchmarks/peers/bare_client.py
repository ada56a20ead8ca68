"""The floor of enqueueing: psycopg alone on the table of django_pgjobs.

`single` repeats the very statement and parameters that `enqueue()` of django_pgjobs sends
for one job (caught from a real call) on a psycopg connection with the settings Django's
connection has. `bulk` is INSERT ... SELECT from arrays, 5,000 rows a statement, in one
transaction. A listening bare worker is woken by a NOTIFY inside the same statement or
transaction, on a channel of its own, so that triggers of the package change nothing.
"""

from __future__ import annotations

from typing import Any

import client
import django
import psycopg
from django.core.management import call_command
from django.db import connection, transaction

BULK_ROWS = 5000
BULK_INSERT = """
    INSERT INTO pgjobs_job (task_path, args)
    SELECT %s, json_build_array(number) FROM generate_series(%s::int, %s::int) AS number
"""
WOKEN_INSERT = """
    WITH job AS (
        INSERT INTO pgjobs_job (task_path, args)
        VALUES (%s, json_build_array(%s::int)) RETURNING id
    )
    SELECT pg_notify('bench_bare', '') FROM job
"""


class Caught(Exception):
    """Carries the statement of one enqueue() out of its transaction."""


def catch_insert(task: str) -> tuple[str, Any]:
    """Return the statement and parameters `enqueue()` sends for one job of *task*."""
    import ours_tasks

    statements: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        statements.append((sql, params))
        return execute(sql, params, many, context)

    try:
        with transaction.atomic(), connection.execute_wrapper(note):
            getattr(ours_tasks, task).enqueue(1)
            raise Caught
    except Caught:
        pass
    if len(statements) != 1:
        raise SystemExit(f"expected enqueue() to send one statement, got {len(statements)}")
    return statements[0]


class BareClient(client.Client):
    def __init__(self) -> None:
        parameters = connection.get_connection_params()
        self.connection = psycopg.connect(**parameters, autocommit=True)

    def setup(self) -> None:
        call_command("migrate", run_syncdb=True, verbosity=0)

    def enqueue(self, task: str, number: int) -> None:
        self.connection.execute(WOKEN_INSERT, (task, number))

    def enqueue_each(self, task: str, count: int) -> None:
        sql, params = catch_insert(task)
        for _ in range(count):
            with self.connection.cursor() as cursor:
                cursor.execute(sql, params)
                cursor.fetchall()
        self.connection.execute("NOTIFY bench_bare")

    def enqueue_bulk(self, task: str, count: int) -> None:
        with self.connection.transaction():
            for first in range(0, count, BULK_ROWS):
                last = min(first + BULK_ROWS, count) - 1
                self.connection.execute(BULK_INSERT, (task, first, last))
            self.connection.execute("NOTIFY bench_bare")


if __name__ == "__main__":
    django.setup()
    client.main(BareClient())
