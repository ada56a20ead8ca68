"""The servers that tests break: that they break as they say, and mend."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import connection

from tests.helpers import (
    WAIT_SECONDS,
    connect,
    database_url,
    time_limit,
    wait_until,
    wait_until_blocked,
)
from tests.proxy import TcpProxy
from tests.servers import PgBouncer, PrivateCluster, temporary_standby

INSERT = "INSERT INTO tests_effect (key, made_at) VALUES (%s, now())"


def count(key: str) -> int:
    """Return how many effects with *key* are committed."""
    with connect() as other:
        row = other.execute("SELECT count(*) FROM tests_effect WHERE key = %s", [key]).fetchone()
    assert row is not None
    return int(row[0])


@contextlib.contextmanager
def through(proxy: TcpProxy) -> Iterator[psycopg.Connection]:
    """Open a connection through *proxy*."""
    with contextlib.closing(connect(proxy.url)) as client:
        yield client


def test_the_proxy_forwards_and_remembers_what_was_executed(proxy: TcpProxy) -> None:
    with through(proxy) as client:
        for number in range(10):  # prepared after a few times
            assert client.execute("SELECT %s::int", [number]).fetchone() == (number,)
    assert list(proxy.executed).count("SELECT $1::int") == 10
    wait_until(lambda: proxy.connections == 0)
    assert proxy.accepted == 1


def test_the_proxy_cuts_all_connections(proxy: TcpProxy) -> None:
    with through(proxy) as client:
        client.execute("SELECT 1")
        proxy.cut()
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    with through(proxy) as client:
        client.execute("SELECT 1")


@pytest.mark.parametrize("threshold", [0, None])
def test_a_statement_cut_before_the_server_saw_it_has_no_effect(
    proxy: TcpProxy, threshold: int | None
) -> None:
    with through(proxy) as client:
        client.prepare_threshold = threshold
        client.execute(INSERT, ["first"])
        rule = proxy.cut_on("INSERT INTO tests_effect", when="before")
        with pytest.raises(psycopg.OperationalError):
            client.execute(INSERT, ["second"])
        rule.wait()
    assert (count("first"), count("second")) == (1, 0)


@pytest.mark.parametrize("threshold", [0, None])
def test_a_statement_cut_after_the_server_did_it_has_its_effect(
    proxy: TcpProxy, threshold: int | None
) -> None:
    with through(proxy) as client:
        client.prepare_threshold = threshold
        client.execute(INSERT, ["first"])
        proxy.cut_on("INSERT INTO tests_effect", when="after")
        with pytest.raises(psycopg.OperationalError):
            client.execute(INSERT, ["second"])
    assert (count("first"), count("second")) == (1, 1)


def test_a_pipelined_statement_cut_after_the_server_did_it_has_its_effect(proxy: TcpProxy) -> None:
    with through(proxy) as client:
        proxy.cut_on("second", when="after")
        with pytest.raises(psycopg.OperationalError):
            _insert_in_one_pipeline(client, "first", "second")
    assert (count("first"), count("second")) == (1, 1)


def _insert_in_one_pipeline(client: psycopg.Connection, *keys: str) -> None:
    with client.pipeline() as pipeline:
        for key in keys:
            client.execute(INSERT, [key])
            pipeline.sync()


def test_a_pattern_may_be_a_parameter_and_fits_as_often_as_asked(proxy: TcpProxy) -> None:
    rule = proxy.cut_on("the needle", times=2)
    for _ in range(2):
        with through(proxy) as client, pytest.raises(psycopg.OperationalError):
            client.execute("SELECT %s", ["with the needle in it"])
    assert rule.left == 0
    with through(proxy) as client:
        client.execute("SELECT %s", ["with the needle in it"])


def test_a_frozen_proxy_holds_everything_back_until_it_thaws(proxy: TcpProxy) -> None:
    with through(proxy) as client:
        proxy.freeze()
        thread = threading.Thread(target=client.execute, args=[INSERT, ["frozen"]])
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert count("frozen") == 0
        proxy.thaw()
        thread.join(WAIT_SECONDS)
        assert count("frozen") == 1


def test_a_dropping_proxy_swallows_and_then_cuts(proxy: TcpProxy) -> None:
    with through(proxy) as client:
        proxy.drop()
        thread = threading.Thread(target=_ignore_errors, args=[client, "dropped"])
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        proxy.undrop()
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert count("dropped") == 0


def _ignore_errors(client: psycopg.Connection, key: str) -> None:
    with contextlib.suppress(psycopg.OperationalError):
        client.execute(INSERT, [key])


def test_a_refusing_proxy_is_an_empty_port_until_it_accepts(proxy: TcpProxy) -> None:
    with through(proxy) as client:
        proxy.refuse()
        client.execute("SELECT 1")  # connections of before stay
        with pytest.raises(psycopg.OperationalError):
            connect(proxy.url)
    proxy.accept()
    with through(proxy) as client:
        client.execute("SELECT 1")


def test_pgbouncer_pools_transactions(pgbouncer: PgBouncer) -> None:
    # One session lets go of the server between two transactions, so the other gets the same.
    with contextlib.ExitStack() as stack:
        pids = set()
        for _ in range(5):
            client = stack.enter_context(contextlib.closing(connect(pgbouncer.url)))
            row = client.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
            pids.add(row)
    assert len(pids) == 1


def test_pgbouncer_ends_its_connections_when_it_restarts(pgbouncer: PgBouncer) -> None:
    with contextlib.closing(connect(pgbouncer.url)) as client:
        client.execute("SELECT 1")
        pgbouncer.restart()
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    with contextlib.closing(connect(pgbouncer.url)) as client:
        client.execute("SELECT 1")


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_private_cluster_keeps_committed_rows(private_database: PrivateCluster, how: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(INSERT, ["kept"])
    if how == "kill":
        private_database.kill()
        assert not private_database.is_running
        private_database.start()
    else:
        private_database.restart()
    connection.close()
    assert count("kept") == 1
    assert f":{private_database.port}/" in database_url()


@pytest.mark.slow
def test_a_standby_follows_its_primary_refuses_writes_and_can_take_its_place(
    private_database: PrivateCluster,
) -> None:
    with temporary_standby(private_database) as standby:
        with connection.cursor() as cursor:
            cursor.execute(INSERT, ["streamed"])
        standby.wait_for_position(private_database.position())
        with contextlib.closing(connect(standby.url("pgjobs"))) as client:
            found = client.execute("SELECT key FROM tests_effect").fetchall()
            assert found == [("streamed",)]
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                client.execute(INSERT, ["refused"])
            standby.promote()
            client.execute(INSERT, ["taken"])


def test_a_private_database_is_empty_and_migrated(private_database: PrivateCluster) -> None:
    assert count("kept") == 0
    with connect() as client:
        client.execute("SELECT FROM pgjobs_job")


def test_another_connection_can_be_waited_for_until_it_waits_for_a_lock(
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    first, second = open_connection(autocommit=False), open_connection()
    first.execute("LOCK TABLE tests_effect")
    thread = threading.Thread(target=second.execute, args=[INSERT, ["late"]])
    thread.start()
    wait_until_blocked(second)
    assert count_now(first) == 0
    first.rollback()
    thread.join(WAIT_SECONDS)
    assert count("late") == 1


def count_now(client: psycopg.Connection) -> int:
    """Return the number of effects that *client* sees."""
    row = client.execute("SELECT count(*) FROM tests_effect").fetchone()
    assert row is not None
    return int(row[0])


def test_wait_until_says_what_it_saw() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: .*is 0\. three words here"):
        wait_until(lambda: 0, timeout=0.05, message=lambda: "three words here")


def test_a_test_that_hangs_is_ended() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"took longer than 0\.05 seconds"):
        with time_limit(0.05):
            signal.pause()
