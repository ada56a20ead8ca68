"""What a worker asks the database for, counted: the price of a job and of doing nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.server import describe_server
from django_pgjobs.worker.process.schema import needed_schema
from tests import tasks
from tests.factories import count_jobs, get_job, get_worker, make_jobs
from tests.helpers import wait_until
from tests.models import Effect
from tests.worker.support import ThreadedWorker, counted_round_trips

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Start = Callable[..., ThreadedWorker]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_drained_job_costs_well_under_one_statement(drain: Start, concurrency: int) -> None:
    """Claims and finishes travel in batches, several in a round trip."""
    make_jobs(2_000)
    with counted_round_trips() as counts:
        drain(concurrency=concurrency)
    assert count_jobs(status="successful", attempts=1) == 2_000
    assert len(counts["pump"]) < 2_000 * 0.1
    assert sum(sum(found) for found in counts.values()) < 2_000 * 0.3


def test_a_single_job_costs_a_handful_of_round_trips(start_thread: Start) -> None:
    worker = start_thread()
    wait_until(lambda: get_worker(worker.id).listening)
    with counted_round_trips() as counts:
        job = tasks.add.enqueue(1, 2)
        wait_until(lambda: get_job(job.id).status == "successful")
        assert len(counts["pump"]) <= 4


def sessions() -> dict[int, str]:
    """The names of the sessions of the test database, this one left out, by process."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, application_name FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
            " AND pid <> pg_backend_pid()"
        )
        return dict(cursor.fetchall())


def test_a_job_without_queries_opens_no_connection_of_its_own(start_thread: Start) -> None:
    # What other tests of this process have left, such as those of the HTTP API.
    before = sessions()
    worker = start_thread(concurrency=2)
    jobs = make_jobs(20)
    wait_until(lambda: {get_job(job_id).status for job_id in jobs} == {"successful"})
    opened = {name for pid, name in sessions().items() if pid not in before}
    # The last one where a minute has just ended.
    own = {"pgjobs pump", "pgjobs lease", "pgjobs upkeep", "pgjobs pruner", "pgjobs recorder"}
    assert opened <= own
    assert worker.is_running


def test_a_server_that_is_only_asked_what_it_is_keeps_no_connection(own: OwnConnection) -> None:
    make_jobs(2, queue_name="mail")
    server = describe_server(own, needed_schema())
    assert (server.is_direct, server.queues) == (True, ["mail"])
    assert not own.is_open


@pytest.fixture
def serializable() -> Iterator[None]:
    """Let every new session of the database begin as SERIALIZABLE."""

    def alter(action: str) -> None:
        with connection.cursor() as cursor:
            name = connection.ops.quote_name(connection.settings_dict["NAME"])
            cursor.execute(f"ALTER DATABASE {name} {action}")
        connection.close()

    alter("SET default_transaction_isolation = 'serializable'")
    yield
    alter("RESET default_transaction_isolation")


def test_everything_works_under_serializable_isolation(serializable: None, drain: Start) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        assert cursor.fetchone() == ("serializable",)
    plain = [tasks.record.enqueue(f"plain {number}") for number in range(60)]
    atomic = [tasks.record_atomic.enqueue(f"atomic {number}") for number in range(20)]
    failing = tasks.fail.enqueue()
    drain(concurrency=4)
    for job in (*plain, *atomic):
        assert get_job(job.id).status == "successful"
    assert Effect.objects.filter(key__startswith="atomic").count() == 20
    assert Effect.objects.filter(key__startswith="plain").values("key").distinct().count() == 60
    assert get_job(failing.id).status == "failed"
    assert count_jobs(status="running") == 0


def test_the_workers_own_sessions_are_read_committed_whatever_the_default(
    serializable: None, own: OwnConnection
) -> None:
    with own.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        assert cursor.fetchall() == [("read committed",)]
