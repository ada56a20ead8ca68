"""A worker behind PgBouncer in transaction mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest
from django.db import connections
from psycopg import sql

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.cursor import Cursor
from tests import tasks as common
from tests.helpers import WorkerProcess, execute, settings_of, wait_until
from tests.process import tasks
from tests.process.support import (
    NEVER,
    Journal,
    wait_for_count,
    wait_for_status,
    wait_until_listening,
)
from tests.servers import PgBouncer

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

PLANS = ["plan_cache_mode", "enable_seqscan", "enable_nestloop", "enable_mergejoin", "jit"]
SETTINGS = [*PLANS, "array_nulls"]


def test_a_worker_behind_pgbouncer_polls_says_so_and_prepares_nothing(
    start: Start,
    journal: Journal,
    pgbouncer: PgBouncer,
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    worker = start("--poll-interval", "0.2", database=pgbouncer.url)
    assert "listen  off (behind a pooler" in worker.output()
    wait_until(lambda: "LISTEN does not work: polling instead" in worker.output())
    client = open_connection(pgbouncer.url)
    client.execute(
        "INSERT INTO pgjobs_job (task_path, args) VALUES (%s, %s)",
        ["tests.process.tasks.enqueue_notes", f'["{journal.folder}", 30]'],
        prepare=False,
    )
    wait_for_count(31, status="successful")
    assert sorted(journal.lines()) == sorted(f"child {number}" for number in range(30))
    wait_for_status(common.fail.enqueue(), "failed")
    wait_for_status(common.record_atomic.enqueue("key"), "successful")
    pgbouncer.restart()
    wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
    assert "prepared statement" not in worker.output()
    assert worker.stop() == 0


def test_a_worker_with_a_direct_connection_of_its_own_listens(
    start: Start, journal: Journal, pgbouncer: PgBouncer
) -> None:
    direct = {key: value for key, value in settings_of().items() if key != "TEST"}
    worker = start(
        "--poll-interval",
        NEVER,
        database=pgbouncer.url,
        settings={"DATABASES": {"direct": direct}},
        pgjobs={"WORKER_DATABASE": "direct"},
    )
    assert "listen  on" in worker.output()
    wait_until_listening()
    job = tasks.enqueue_notes.enqueue(journal.folder, 3)
    wait_for_status(job, "successful", worker=worker)
    journal.wait_for("child 0", "child 1", "child 2")
    assert worker.stop() == 0


def test_a_row_that_somebody_has_locked_delays_no_other_job_behind_pgbouncer(
    start: Start,
    journal: Journal,
    pgbouncer: PgBouncer,
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    """A session of the pooler has no settings of ours, no lock timeout either."""
    worker = start("--poll-interval", "0.2", "-c", "2", database=pgbouncer.url)
    held = tasks.pass_gate.enqueue(journal.folder, "held")
    journal.wait_for("start held 1")
    other = open_connection(autocommit=False)
    other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [held.id])
    journal.open_gate()
    journal.wait_for("end held 1")
    common.add.enqueue_many([(1, 2)] * 20)
    wait_for_count(20, status="successful")
    other.commit()
    wait_for_status(held, "successful", worker=worker)
    assert worker.stop() == 0


@pytest.fixture
def array_nulls_off() -> Iterator[None]:
    """The database turns off NULL in arrays for its sessions."""
    name = sql.Identifier(connections["default"].settings_dict["NAME"])
    execute(sql.SQL("ALTER DATABASE {} SET array_nulls = off").format(name))
    yield
    execute(sql.SQL("ALTER DATABASE {} RESET array_nulls").format(name))


@pytest.mark.usefixtures("array_nulls_off")
def test_statements_behind_pgbouncer_are_planned_as_on_a_direct_connection(
    pgbouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled, which is the default of many servers, a claim took seconds.

    And where the database turns off the NULL of arrays, jobs with keys never started.
    """
    pooled = connections.settings["default"] | {"HOST": "127.0.0.1", "PORT": pgbouncer.port}
    monkeypatch.setitem(connections.settings, "pooled", pooled)
    behind, direct = OwnConnection("pooled", "test"), OwnConnection("default", "test")
    with closing(behind), closing(direct):
        assert settings_in(behind) == settings_in(direct)
        with behind.transaction(), behind.cursor() as cursor:
            ask_settings(cursor)
            assert [cursor.fetchall()] == [settings_in(direct)]
        assert not behind.is_direct


def ask_settings(cursor: Cursor) -> None:
    cursor.execute("SELECT name, current_setting(name) FROM unnest($1::text[]) AS name", [SETTINGS])


def settings_in(connection: OwnConnection) -> list[tuple[str, str]]:
    [rows] = connection.round_trip([ask_settings])
    return rows


def test_a_pooler_before_a_server_that_takes_no_writes_ends_the_start_with_3(
    start: Start, pgbouncer: PgBouncer, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """The worker's settings, which would switch that off, do not get through a pooler."""
    admin, database = open_connection(), settings_of()["NAME"]
    admin.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    try:
        worker = start("--check", database=pgbouncer.url)
        assert worker.wait() == 3
    finally:
        admin.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    assert "the server behind the pooler takes no writes" in worker.output()
