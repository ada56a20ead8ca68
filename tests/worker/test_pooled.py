"""Projects that let Django pool its connections: OPTIONS = {"pool": ...}.

A pool may have fewer connections than a worker has threads, four by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgjobs.management.banner import warnings_of
from django_pgjobs.queries.server import Server
from django_pgjobs.worker.running.slots import Slots
from tests.factories import get_job
from tests.helpers import wait_until
from tests.worker import dirt
from tests.worker.support import ThreadedWorker, make_options, run_in_one_slot

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


class Pool:
    """What Django uses of a psycopg_pool.ConnectionPool, with one connection."""

    def __init__(self) -> None:
        self.free: list[Any] = []
        self.made = 0

    def open(self) -> None:
        """Be open already."""

    def getconn(self) -> Any:
        """Return the connection; raise what an exhausted pool raises."""
        if not self.free:
            if self.made:
                raise psycopg.OperationalError("couldn't get a connection after 30.00 sec")
            self.free.append(psycopg.connect(**connection.get_connection_params(), autocommit=True))
            connection._configure_connection(self.free[0])
            self.free[0]._pool = self
            self.made = 1
        return self.free.pop()

    def putconn(self, raw: Any) -> None:
        """Take the connection back; one that is closed is replaced."""
        if raw.closed:
            self.made -= 1
        else:
            self.free.append(raw)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Let Django take the connections of new threads from a pool of one."""
    made = Pool()
    connection.ensure_connection()
    options = {**connection.settings_dict["OPTIONS"], "pool": {"min_size": 1}}
    with monkeypatch.context() as patched:
        patched.setitem(connection._connection_pools, "default", made)
        patched.setitem(connection.settings_dict, "OPTIONS", options)
        yield made
    for raw in made.free:
        raw.close()


def run_job(task: Any, *args: Any) -> Any:
    """Let a worker run a job that must be successful at its only attempt; return its result."""
    job = task.using(max_attempts=1).enqueue(*args)
    wait_until(lambda: get_job(job.id).status in ("successful", "failed"))
    assert get_job(job.id).status == "successful", get_job(job.id).errors
    return get_job(job.id).result


def test_a_thread_gives_its_connection_back_after_each_job(pool: Pool, start_thread: Start) -> None:
    """Else a pool of four would let the jobs of a fifth thread fail."""
    start_thread(concurrency=1)
    pids = [run_job(dirt.backend_pid) for _ in range(2)]
    assert len(set(pids)) == 1
    assert len(pool.free) == 1


def test_a_pooled_connection_that_the_server_ended_fails_no_job(
    pool: Pool, start_thread: Start
) -> None:
    start_thread(concurrency=1)
    first = run_job(dirt.backend_pid)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 15000)", [first])
    assert run_job(dirt.backend_pid) != first


@pytest.mark.parametrize(
    "name",
    [
        "atomic never left after a write",
        "role",
        "setting of a project",
        "driver's read-only",
        "closed by the job",
        "closed behind Django",
        "terminated by the server",
    ],
)
def test_the_next_job_of_a_pooled_connection_notices_nothing(pool: Pool, name: str) -> None:
    before, _, after = run_in_one_slot(
        Slots, (dirt.probe, []), (dirt.leave, [name]), (dirt.probe, [])
    )
    assert after.result == before.result


def test_a_session_that_the_server_refused_does_not_go_back_to_its_pool(pool: Pool) -> None:
    """The next one that gets it may be another thread, or code that knows nothing of jobs."""
    outcomes = run_in_one_slot(
        Slots, (dirt.backend_pid, []), (dirt.write_read_only, []), (dirt.backend_pid, [])
    )
    assert outcomes[0].result != outcomes[2].result


def test_a_pool_that_is_smaller_than_the_worker_is_warned_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server("18.1", "shop", True, [], 100)

    def warnings(pool: object, concurrency: int) -> list[str]:
        monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": pool})
        return list(warnings_of(make_options(concurrency=concurrency), server, 1))

    [warning] = warnings(True, 4)
    assert warning == (
        "jobs may use 5 connections at a time (4 threads, and one for async jobs), and the pool of "
        "the database 'default' has 4: jobs that get none for its timeout fail. Raise its "
        "max_size, or lower --concurrency."
    )
    assert warnings(True, 3) == warnings({"max_size": 9}, 8) == warnings(False, 8) == []
    assert len(warnings({"min_size": 2}, 2)) == len(warnings({"max_size": 8}, 8)) == 1
