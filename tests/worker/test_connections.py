"""How many connections a worker opens, and what it says if the server has not room for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs.management.banner import warnings_of
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import statement
from django_pgjobs.queries.server import Server, describe_server
from django_pgjobs.worker.process.schema import needed_schema
from django_pgjobs.worker.state import CONNECTED_ROLES
from tests.factories import get_worker
from tests.helpers import WAIT_SECONDS, connect, database_url, wait_until
from tests.servers import PrivateCluster
from tests.worker import tasks as gate_tasks
from tests.worker.support import Gate, ThreadedWorker, make_options

Start = Callable[..., ThreadedWorker]


def server(*, free: int, is_direct: bool = True) -> Server:
    return Server("18.1", "shop", is_direct, [], free)


def test_too_few_free_connections_are_warned_about_with_what_is_needed() -> None:
    options = make_options(concurrency=8)
    assert list(warnings_of(options, server(free=44), 4)) == []
    [warning] = warnings_of(options, server(free=43), 4)
    assert warning == (
        "this command opens up to 44 connections (4 x 11), and the server has room for 43 "
        "more: jobs and workers will fail to connect. Raise max_connections (and CONNECTION LIMIT "
        "of the role and the database, if they have one), lower --processes or --concurrency, or "
        "let jobs go through a pooler."
    )
    [warning] = warnings_of(options, server(free=-3), 4)
    assert "room for 0 more" in warning


def test_connections_of_jobs_that_go_elsewhere_are_not_counted() -> None:
    """PGJOBS["WORKER_DATABASE"] is direct, and jobs go through PgBouncer."""
    options = make_options(concurrency=8, database="direct")
    assert options.count_connections("default") == len(CONNECTED_ROLES)
    assert list(warnings_of(options, server(free=12), 4)) == []


def test_what_a_pooler_has_room_for_is_not_known() -> None:
    assert list(warnings_of(make_options(), server(free=0, is_direct=False), 1)) == []


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_process_opens_as_many_connections_as_are_counted(
    start_thread: Start, gate: Gate
) -> None:
    """Those of the pruner come and go, in one process of all."""
    others = list_sessions()
    worker = start_thread(concurrency=1)
    gate_tasks.record_atomic_at_gate.enqueue("x")
    gate.wait_entered()
    most = worker.runner.state.options.count_connections("default")
    wait_until(lambda: len(list_sessions() - others) == most, message=name_sessions)


@pytest.mark.django_db(transaction=True)
def test_an_idle_process_keeps_two_connections(start_thread: Start) -> None:
    others = list_sessions()
    worker = start_thread(concurrency=1)
    wait_until(
        lambda: get_worker(worker.id).listening and len(list_sessions() - others) == 2,
        message=name_sessions,
    )
    assert worker.stop() == 0
    assert get_worker(worker.id).ended_at


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_worker_with_a_job_takes_and_keeps_the_connection_of_its_lease(
    start_thread: Start, gate: Gate
) -> None:
    """A server that is full later takes no lease from it."""
    worker = start_thread(concurrency=1)
    wait_until(lambda: get_worker(worker.id).listening and not lease_of(worker).is_open)
    gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    wait_until(lambda: lease_of(worker).is_open)
    gate.open()
    # It goes with the next renewal; somebody asks for one here.
    wait_until(lambda: not worker.runner.state.held)
    worker.runner.leases.wake()
    wait_until(lambda: not lease_of(worker).is_open)


def lease_of(worker: ThreadedWorker) -> OwnConnection:
    return worker.runner._connections["lease"]


def list_sessions() -> set[int]:
    """Return the processes of the server that serve somebody else than this test."""
    return set(name_sessions())


def name_sessions() -> dict[int, str]:
    """Return what each of them is for, and what it did last."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, concat_ws(': ', application_name, state, left(query, 80))"
            " FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND application_name <> 'pgjobs pruner'"
            " AND pid <> pg_backend_pid()"
        )
        return dict(cursor.fetchall())


@pytest.mark.django_db(transaction=True)
def test_free_are_those_that_are_neither_reserved_nor_in_use(
    private_database: PrivateCluster,
) -> None:
    def free() -> int:
        return describe_server(OwnConnection("default", "test"), needed_schema()).free

    with connect(database_url(), autocommit=True) as session:
        names = ("max_connections", "superuser_reserved_connections", "reserved_connections")
        query = "SELECT current_setting(%s, TRUE)::integer"
        most, *reserved = [session.execute(query, [name]).fetchone()[0] or 0 for name in names]
        others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        [in_use] = session.execute(others).fetchone()
        before = free()
        assert before == most - sum(reserved) - in_use
        with connect(database_url()) as other:
            other.execute("SELECT 1")
            # The session that was asked through before may still be about to end.
            wait_until(lambda: free() == before - 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("what", ["DATABASE", "ROLE"])
def test_the_limits_of_the_role_and_the_database_count(
    private_database: PrivateCluster, what: str
) -> None:
    """They hold for roles that are no superusers only."""
    with connect(database_url(), autocommit=True) as session:
        database = session.info.dbname
        session.execute("DROP ROLE IF EXISTS few")
        session.execute("CREATE ROLE few LOGIN IN ROLE pg_read_all_data")
        name = sql.Identifier(database if what == "DATABASE" else "few")
        limit = sql.SQL("ALTER {} {} CONNECTION LIMIT {}")
        ask = statement("describe_server")
        try:
            session.execute(limit.format(sql.SQL(what), name, 9))
            with connect(database_url(USER="few")) as own:
                [free] = own.execute(ask).fetchone()[-1:]
                others = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND usename = %s"
                [mine] = own.execute(others, [database, "few"]).fetchone()
            assert mine == 1
            assert 0 <= free <= 9
            assert free == 9 if what == "ROLE" else free < 9
        finally:
            session.execute(limit.format(sql.SQL(what), name, -1))
            session.execute("DROP OWNED BY few")
            session.execute("DROP ROLE few")


@pytest.mark.django_db(transaction=True)
def test_the_distance_of_the_server_is_that_of_the_shortest_round_trip(own: OwnConnection) -> None:
    own.open()
    assert 0 < own.distance < WAIT_SECONDS
    own.distance = 3600.0
    own.round_trip([lambda cursor: cursor.execute("SELECT pg_catalog.pg_sleep(0.05)")])
    shortest = own.distance
    assert 0.05 <= shortest < WAIT_SECONDS
    own.round_trip([lambda cursor: cursor.execute("SELECT pg_catalog.pg_sleep($1)", [shortest])])
    assert own.distance == shortest
