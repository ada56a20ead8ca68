"""A standby takes the place of the server: nobody stays on a server that takes no writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections

from example_project.database import parse_url
from tests import tasks as common
from tests.factories import get_job
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import Journal, wait_for_status, wait_until_listening
from tests.proxy import TcpProxy
from tests.servers import PrivateCluster, temporary_standby

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

DATABASE = "pgjobs"


@pytest.fixture
def standby(private_database: PrivateCluster) -> Iterator[PrivateCluster]:
    """A standby of the server on which the test database lies."""
    with temporary_standby(private_database) as standby:
        yield standby


def settings_for(cluster: PrivateCluster) -> dict[str, Any]:
    """Return Django's settings for the test database on another server."""
    return parse_url(cluster.url(DATABASE))


@pytest.fixture
def lead_to() -> Iterator[Callable[[PrivateCluster], None]]:
    """Let the test itself use another server from now on: `lead_to(cluster)`."""

    def change(cluster: PrivateCluster) -> None:
        connection.close()
        connections.settings["default"].update(settings_for(cluster))

    yield change
    connection.close()


@pytest.mark.parametrize(
    "flags", [(), ("--processes", "2"), ("--check",)], ids=["alone", "processes", "check"]
)
def test_a_start_on_a_standby_ends_with_3_and_says_why(
    start: Start, standby: PrivateCluster, flags: tuple[str, ...]
) -> None:
    worker = start(*flags, database=standby.url(DATABASE))
    assert worker.wait() == 3
    assert "standby" in worker.output()
    assert "Start a server that takes writes" in worker.output()
    assert "Traceback" not in worker.output()


def test_a_start_on_a_standby_that_the_project_asks_for_ends_with_3_too(
    start: Start, standby: PrivateCluster
) -> None:
    """As with a libpq or a pooler that cannot ask for a primary."""
    worker = start("--check", database=standby.url(DATABASE) + "?target_session_attrs=any")
    assert worker.wait() == 3
    assert "the server is a standby and takes no writes" in worker.output()


def test_a_worker_leaves_a_standby_and_goes_on_when_that_is_promoted(
    start: Start,
    journal: Journal,
    private_database: PrivateCluster,
    standby: PrivateCluster,
    start_proxy: Callable[..., TcpProxy],
    lead_to: Callable[[PrivateCluster], None],
) -> None:
    """An address that moves: the standby behind it is at first not promoted yet."""
    proxy = start_proxy()
    worker = start("-c", "2", database=proxy.url)
    job = tasks.pass_gate.enqueue(journal.folder, "held")
    journal.wait_for("start held 1")
    standby.wait_for_position(private_database.position())
    proxy.settings = settings_for(standby)
    connection.close()
    private_database.stop("immediate")
    proxy.cut()
    journal.open_gate()
    worker.wait_for_output("standby")
    standby.promote()
    lead_to(standby)
    row = wait_for_status(job, "successful", worker=worker)
    assert (row.attempts, row.lost_count) == (1, 0)
    wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
    wait_until_listening()
    assert worker.stop() == 0


def hosts_of(*clusters: PrivateCluster) -> str:
    hosts = ",".join(f"127.0.0.1:{each.port}" for each in clusters)
    return f"postgresql://postgres@{hosts}/{DATABASE}"


def test_a_start_whose_jobs_would_meet_the_standby_among_several_hosts_ends_with_3(
    start: Start, private_database: PrivateCluster, standby: PrivateCluster
) -> None:
    """The worker's own connections ask for a primary and find it."""
    worker = start(database=hosts_of(standby, private_database))
    assert worker.wait() == 3
    assert "takes no writes: the transactions of its connections are read" in worker.output()


def test_a_worker_with_several_hosts_goes_to_the_one_that_takes_writes(
    start: Start,
    private_database: PrivateCluster,
    standby: PrivateCluster,
    lead_to: Callable[[PrivateCluster], None],
) -> None:
    url = hosts_of(standby, private_database) + "?target_session_attrs=read-write"
    worker = start(database=url)
    job = common.add.enqueue(1, 2)
    wait_for_status(job, "successful", worker=worker)
    standby.wait_for_position(private_database.position())
    connection.close()
    private_database.stop("immediate")
    standby.promote()
    lead_to(standby)
    wait_until(lambda: get_job(job.id).status == "successful")
    wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
    assert worker.stop() == 0
