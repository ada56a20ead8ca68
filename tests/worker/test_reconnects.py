"""Connections that die are replaced, and no wake-up falls in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import psycopg
import pytest
from django.db import connections
from psycopg import sql

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.running import watchdog as watchdog_module
from django_pgjobs.worker.running.watchdog import Watchdog
from django_pgjobs.worker.upkeep import look
from tests import tasks
from tests.factories import get_job, get_worker, make_job
from tests.helpers import connect, wait_until
from tests.proxy import TcpProxy
from tests.worker import tasks as gate_tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def session_of(role: str) -> int | None:
    """Return the server process behind a worker's connection of that role."""
    with connect() as observer:
        found = observer.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = %s",
            [f"pgjobs {role}"],
        ).fetchone()
    return found[0] if found else None


def end_session_of(role: str) -> int:
    """End that session; return its process."""
    pid = wait_until(lambda: session_of(role))
    with connect() as observer:
        observer.execute("SELECT pg_terminate_backend(%s, 15000)", [pid])
    return pid


def test_an_upkeep_whose_connection_dies_listens_again(start_thread: Start) -> None:
    """Only the upkeep's; wake-ups are back, though the poll is slow."""
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    old = end_session_of("upkeep")
    wait_until(lambda: session_of("upkeep") not in (None, old))
    wait_until(lambda: worker.listens)
    for _ in range(3):
        job = tasks.add.enqueue(1, 2)
        wait_until(lambda job=job: get_job(job.id).status == "successful")


REFUSE_COMMIT = """
CREATE FUNCTION refuse_commit() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'refused at the commit';
END
$body$;
CREATE CONSTRAINT TRIGGER refuse_commit AFTER UPDATE OF due_at ON pgjobs_job_live
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (OLD.due_at IS NOT NULL AND NEW.due_at IS NULL) EXECUTE FUNCTION refuse_commit();
"""


@pytest.fixture
def refused_commits() -> Iterator[None]:
    """Let no job be promoted: it is the commit that fails, and psycopg's count of the answers."""
    with connect() as other:
        other.execute(REFUSE_COMMIT)
        yield
        other.execute("DROP FUNCTION refuse_commit() CASCADE")


@pytest.mark.usefixtures("refused_commits")
def test_an_upkeep_whose_commit_was_refused_listens_on_its_new_connection(
    start_thread: Start,
) -> None:
    """It was opened in the middle of a turn, to go on with the rest of that."""
    due = make_job(due_at=sql.SQL("now() - interval '1 minute'"))
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_job(due).note.startswith("passed over"))
    wait_until(lambda: worker.listens)


def test_a_busy_worker_whose_upkeep_lost_its_connection_takes_back_that_it_listens(
    start_thread: Start, gate: Gate
) -> None:
    """Else every enqueue would notify it until it is idle again."""
    worker = start_thread(poll_interval=NEVER, concurrency=1)
    wait_until(lambda: get_worker(worker.id).listening)
    gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    end_session_of("upkeep")
    wait_until(lambda: not get_worker(worker.id).listening)


def make_job_elsewhere() -> int:
    """Insert a job on a connection of its own and return its id."""
    with connect() as other:
        row = other.execute(
            "INSERT INTO pgjobs_job (task_path, args) VALUES ('tests.tasks.add', '[1, 2]')"
            " RETURNING id"
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.slow
def test_what_was_notified_while_nobody_listened_is_found(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After every LISTEN there is a look."""
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    # After this job the next look of its own accord is an hour away.
    monkeypatch.setattr(look, "FIRST_GAP_SECONDS", NEVER)
    before = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(before.id).status == "successful")
    open_connection = OwnConnection.open
    jobs: list[int] = []

    def enqueue_first(own: OwnConnection) -> psycopg.Connection:
        if own.role == "upkeep" and not jobs:
            jobs.append(make_job_elsewhere())
        return open_connection(own)

    monkeypatch.setattr(OwnConnection, "open", enqueue_first)
    end_session_of("upkeep")
    wait_until(lambda: jobs and get_job(jobs[0]).status == "successful")


@pytest.mark.slow
@pytest.mark.parametrize("role", ["pump", "lease"])
def test_a_worker_whose_other_connections_die_goes_on(
    start_thread: Start, gate: Gate, role: str
) -> None:
    """It has a job, so it keeps that of the lease."""
    worker = start_thread(poll_interval=NEVER, concurrency=2)
    gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    old = end_session_of(role)
    worker.wake()
    job = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).status == "successful")
    wait_until(lambda: session_of(role) not in (None, old))
    gate.open()
    assert worker.stop() == 0


@pytest.fixture
def slow_server(proxy: TcpProxy) -> Iterator[OwnConnection]:
    """A connection through the proxy whose statements may wait 0.2 seconds for an answer."""
    settings = connections.settings["default"]
    connections.settings["proxied"] = settings | {
        "HOST": "127.0.0.1",
        "PORT": proxy.port,
        "OPTIONS": settings["OPTIONS"] | {"sslmode": "disable", "gssencmode": "disable"},
    }
    own = OwnConnection("proxied", "test", answer_seconds=0.2)
    yield own
    own.close()
    del connections.settings["proxied"]


def test_a_statement_whose_answer_does_not_come_is_ended_by_the_watchdog(
    slow_server: OwnConnection, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network is gone, and TCP does not say so for a long time."""
    monkeypatch.setattr(watchdog_module, "LOOK_SECONDS", 0.05)
    slow_server.open()
    crashes: list[str] = []
    role = Watchdog(
        [slow_server],
        grace=1.0,
        is_running=lambda attempt: False,
        on_look=lambda: None,
        on_stuck=lambda attempt: None,
        on_crash=crashes.append,
    )
    role.start()
    proxy.freeze()
    try:
        with pytest.raises(psycopg.OperationalError):
            slow_server.round_trip([lambda cursor: cursor.execute("SELECT 1")])
    finally:
        proxy.thaw()
        role.stop()
        assert role.join(15)
    assert not crashes
    assert slow_server.round_trip([partial(_select, value=2)]) == [[(2,)]]


def _select(cursor: psycopg.Cursor, *, value: int) -> None:
    cursor.execute("SELECT $1::integer", [value])
