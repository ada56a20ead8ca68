"""A worker's own connections search PostgreSQL's schema only, and jobs may search what they like.

The tables are named with the schema that was found when the connection was opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import connection

from django_pgjobs import cancel
from django_pgjobs.models import Job
from django_pgjobs.models.control import ConcurrencyLimit, RateLimit
from django_pgjobs.queries.connection import OwnConnection
from tests import tasks as plain_tasks
from tests.factories import get_job, make_running_job, make_worker
from tests.helpers import wait_until
from tests.shadows import create_shadows
from tests.worker import tasks
from tests.worker.support import ThreadedWorker, claim

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
Open = Callable[..., psycopg.Connection]


@pytest.fixture
def shadows(open_connection: Open) -> Iterator[None]:
    """New sessions of the test database search a schema in which somebody made better matches."""
    client = open_connection()
    database = f'"{connection.settings_dict["NAME"]}"'
    create_shadows(psycopg.ClientCursor(client))
    client.execute(f"ALTER DATABASE {database} SET search_path = public, shadow".encode())
    connection.close()
    yield
    client.execute(f"ALTER DATABASE {database} RESET search_path".encode())
    client.execute("DROP SCHEMA shadow CASCADE")
    connection.close()


def test_own_connections_search_no_schema_but_postgresqls(own: OwnConnection) -> None:
    with own.cursor() as cursor:
        cursor.execute("SHOW search_path")
        assert cursor.fetchall() == [("pg_catalog, pg_temp",)]
    assert own.schema == "public"


@pytest.mark.slow
def test_a_worker_calls_no_operator_of_somebody_else(shadows: None, start_thread: Start) -> None:
    """Each of them would raise, and nothing would come to its end."""
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=2)
    RateLimit.objects.create(name="fast", count=1000, period=1)
    plain = plain_tasks.add.enqueue(1, 2)
    keyed = plain_tasks.add.using(concurrency_key="shop:1", rate_limit="fast").enqueue(1, 2)
    after = plain_tasks.add.using(after=[plain, keyed]).enqueue(1, 2)
    atomic = plain_tasks.record_atomic.enqueue("x")
    failing = plain_tasks.fail.enqueue()
    cancelled = plain_tasks.add.enqueue(1, 2)
    cancel(cancelled)
    lost = make_running_job(make_worker(lease_expires_at="2020-01-01"))
    start_thread(listen=True)
    wait_until(lambda: not Job.objects.unfinished().exists())
    done = [get_job(job.id).status for job in (plain, keyed, after, atomic, failing, cancelled)]
    assert done == ["successful"] * 4 + ["failed", "cancelled"]
    assert get_job(lost.id).lost_count == 1


def test_a_session_of_a_pooler_calls_none_either(shadows: None, own: OwnConnection) -> None:
    """Its search path is not for us to set."""
    job = plain_tasks.add.enqueue(1, 2)
    with own.cursor() as cursor:
        cursor.execute("SET search_path = public, shadow")
    assert [row.id for row in claim(own, make_worker())] == [int(job.id)]


def test_a_job_may_change_its_search_path(drain: Callable[..., ThreadedWorker]) -> None:
    """Its outcome is written in its transaction, and what it enqueues goes to our tables."""
    job = tasks.enqueue_from_another_path.enqueue()
    drain()
    assert get_job(job.id).status == "successful"
    assert Job.objects.filter(status="successful").count() == 6


def test_without_our_tables_there_is_no_schema(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**connection.settings_dict["OPTIONS"], "options": "-c search_path=nowhere"}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    own.open()
    assert own.schema is None
