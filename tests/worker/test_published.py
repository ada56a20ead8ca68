"""Projects that publish their tables: logical replication, or a stream of their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from django_pgjobs import group, task
from django_pgjobs.models import Job
from tests import tasks
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Drain = Callable[..., ThreadedWorker]


@task
def total(numbers: list[int]) -> int:
    """Return the sum of the results of a batch."""
    return sum(numbers)


@pytest.fixture
def publication() -> Iterator[None]:
    """Publish all changes of all tables of the database."""
    tables = connection.introspection.table_names()
    with connection.cursor() as cursor:
        names = ", ".join(connection.ops.quote_name(name) for name in tables)
        cursor.execute(f"CREATE PUBLICATION everything FOR TABLE {names}")
        yield
        cursor.execute("DROP PUBLICATION everything")


@pytest.mark.slow
def test_jobs_and_workflows_run_in_published_tables(publication: None, drain: Drain) -> None:
    tasks.fail.using(concurrency_key="shop").enqueue()
    group((tasks.add.s(number, 1) for number in range(3)), gather=total.s())
    drain()
    assert not Job.objects.unfinished().exists()
    assert Job.objects.get(task_path=total.module_path).result == 6
