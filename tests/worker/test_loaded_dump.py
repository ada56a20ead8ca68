"""What `pg_dump --data-only` has saved is loaded table by table, and jobs go on.

Our triggers are there already then; a whole dump makes them at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql

from django_pgjobs import chain, group, workflow
from django_pgjobs.models import Batch, Job
from tests import tasks
from tests.worker.support import ThreadedWorker
from tests.worker.test_published import total

pytestmark = pytest.mark.django_db(transaction=True)

# In the order of their names, as pg_dump has them.
TABLES = """
SELECT relname::text FROM pg_class
WHERE relname LIKE 'pgjobs%' AND relkind = 'r' AND relnamespace = 'public'::regnamespace
ORDER BY relname
"""


def dump_and_load(session: psycopg.Connection) -> None:
    """Read all tables of ours, empty them, and load each in a transaction of its own."""
    names = [sql.Identifier(name) for (name,) in session.execute(TABLES)]
    saved = []
    with session.cursor() as cursor:
        for name in names:
            with cursor.copy(sql.SQL("COPY {} TO STDOUT").format(name)) as copy:
                saved.append(b"".join(bytes(part) for part in copy))
        cursor.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(names)))
        for name, rows in zip(names, saved, strict=True):
            with cursor.copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copy:
                copy.write(rows)


@pytest.mark.slow
def test_jobs_that_wait_for_others_go_on(
    open_connection: Callable[..., psycopg.Connection], drain: Callable[..., ThreadedWorker]
) -> None:
    first = tasks.add.enqueue(1, 2)
    tasks.add.using(after=[first]).enqueue(3, 4)
    chain(tasks.add.s(1, 1), tasks.add.s(2))
    group((tasks.add.s(number, 1) for number in range(3)), gather=total.s())
    with workflow("payroll", seal=False) as flow:
        flow.add(tasks.add.s(1, 1))
    session = open_connection()
    insert = "INSERT INTO pgjobs_job (task_path, args, batch_id) VALUES (%s, '[5, 6]', %s)"
    session.execute(insert, [tasks.add.module_path, flow.pk])
    dump_and_load(session)
    Batch.objects.get(pk=flow.pk).seal()
    drain()
    assert not Job.objects.exclude(status="successful").exists()
    assert not Batch.objects.filter(tree_completed_at=None).exists()
