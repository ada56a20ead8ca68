"""Commits that wait for a synchronous standby that is gone: no cure, but no flood of sessions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from django_pgjobs.queries.connection import OwnConnection, SessionUnusable
from tests.helpers import connect, wait_until
from tests.servers import PrivateCluster

pytestmark = pytest.mark.django_db(transaction=True)

WRITE = "INSERT INTO public.tests_effect (key, made_at) VALUES ('hanging', now())"


def wait_for(server: psycopg.Connection, standby: str) -> None:
    """Let every commit from now on wait for this standby; "" is none."""
    server.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standby}'")
    server.execute("SELECT pg_reload_conf()")


def waiting(server: psycopg.Connection) -> list[int]:
    """Return the sessions of ours whose commit waits for a standby."""
    found = server.execute(
        "SELECT pid FROM pg_stat_activity"
        " WHERE wait_event = 'SyncRep' AND application_name = 'pgjobs test'"
    )
    return [pid for (pid,) in found]


@pytest.fixture
def server(private_database: PrivateCluster) -> Iterator[psycopg.Connection]:
    """A connection to a server whose commits wait for a standby that is not there."""
    with closing(connect()) as other:
        wait_for(other, "gone")
        yield other
        wait_for(other, "")


@pytest.fixture
def own(server: psycopg.Connection) -> Iterator[OwnConnection]:
    """Our connection, one of whose commits hangs until it is cut."""
    own = OwnConnection("default", "test")
    failures: list[psycopg.Error] = []

    def write() -> None:
        try:
            while True:  # until the checkpointer has told that commits are to wait
                own.round_trip([lambda cursor: cursor.execute(WRITE)])
        except psycopg.Error as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    wait_until(lambda: failures or waiting(server))
    assert not failures
    own.cut()
    thread.join(15)
    assert failures
    yield own
    own.close()
    wait_for(server, "")
    wait_until(lambda: not waiting(server))


def test_no_new_session_is_begun_while_a_commit_of_the_one_before_hangs(
    own: OwnConnection, server: psycopg.Connection
) -> None:
    hanging = waiting(server)
    for _ in range(3):
        with pytest.raises(SessionUnusable, match="a commit of the session before still waits"):
            own.open()
    assert (own.is_open, waiting(server)) == (False, hanging)
    wait_for(server, "")
    wait_until(lambda: not waiting(server))
    own.open()
    assert own.is_open


def test_a_session_that_was_cut_in_a_read_holds_up_no_other(server: psycopg.Connection) -> None:
    own = OwnConnection("default", "test")
    with closing(own):
        first = own.open().info.backend_pid
        own.cut()
        own.close()
        assert own.open().info.backend_pid != first
