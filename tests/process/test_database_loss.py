"""The database stops, connections break, answers get lost: what the worker makes of it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Literal

import pytest
from django.db import connection

from tests import tasks as common
from tests.factories import count_jobs, get_job
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import (
    NEVER,
    Journal,
    backends_of,
    journal_counts,
    terminate,
    wait_for_count,
    wait_for_status,
    wait_until_listening,
)
from tests.proxy import TcpProxy
from tests.servers import PrivateCluster

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

# Statements of the worker that a proxy can recognise.
CLAIM = "status = 'running',"
FINISH = "status = 'successful'"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_outage_of_the_server_loses_no_job_and_repeats_none(
    start: Start, journal: Journal, private_database: PrivateCluster, how: str
) -> None:
    """S2.2: outcomes of the time without a database are kept and written later."""
    worker = start("-c", "4")
    jobs = tasks.pass_gate.enqueue_many((journal.folder, str(number)) for number in range(6))
    journal.wait_for(*(f"start {number} 1" for number in range(4)))
    connection.close()
    if how == "stop":
        private_database.stop("fast")
    else:
        private_database.kill()
    journal.open_gate()
    journal.wait_for(*(f"end {number} 1" for number in range(4)))
    worker.wait_for_output("statement failed")
    private_database.start()
    for job in jobs:
        row = wait_for_status(job, "successful", worker=worker)
        assert (row.attempts, row.lost_count) == (1, 0)
    assert set(journal_counts(journal).values()) == {1}
    assert "the database answers again" in worker.output()
    wait_for_status(common.add.enqueue(1, 2), "successful")
    assert worker.stop() == 0


def test_an_outage_longer_than_the_lease_ends_the_jobs_and_they_run_again(
    start: Start, journal: Journal, private_database: PrivateCluster
) -> None:
    """At-least-once execution, the worker goes on."""
    worker = start("--lease-seconds", "1.5")
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    connection.close()
    private_database.stop("fast")
    worker.wait_for_output("ends its jobs")
    worker.wait_for_output("release tests.process.tasks.pass_gate")
    private_database.start()
    journal.open_gate()
    row = wait_for_status(job, "successful", worker=worker)
    assert "end job 1" not in journal.lines() or row.attempts == 1
    assert journal.lines()[-1].startswith("end job")
    assert worker.stop() == 0


def test_connections_that_are_ended_again_and_again_lose_and_repeat_nothing(
    start: Start, journal: Journal
) -> None:
    """S4.16: no job is lost, the worker goes on."""
    worker = start("-c", "4")
    names = [str(number) for number in range(300)]
    tasks.note.enqueue_many((journal.folder, name, 0.01) for name in names)
    for share in (20, 60, 100, 140, 180, 220):
        wait_until(lambda share=share: len(journal.lines()) >= share)
        terminate(backends_of())
    wait_for_count(300, status="successful", timeout=30)
    assert count_jobs(attempts=1, lost_count=0) == 300
    assert sorted(journal.lines()) == sorted(names)
    assert worker.stop() == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_outcome_is_written_once_if_the_connection_breaks_at_it(
    start: Start, journal: Journal, proxy: TcpProxy, when: Literal["before", "after"]
) -> None:
    """Whether or not the server saw the statement before the connection broke."""
    worker = start("--poll-interval", NEVER, database=proxy.url)
    wait_until_listening()
    rule = proxy.cut_on(FINISH, when=when)
    job = tasks.note.enqueue(journal.folder, "done")
    rule.wait()
    row = wait_for_status(job, "successful", worker=worker)
    assert (row.attempts, row.errors) == (1, [])
    # Written and settled: the worker is idle again and not waiting to write it once more.
    wait_for_status(common.add.enqueue(1, 2), "successful")
    wait_until_listening()
    assert get_job(job.id) == row
    assert journal.lines() == ["done"]
    assert worker.stop() == 0


def test_jobs_of_a_claim_whose_answer_was_lost_go_back_uncounted(
    start: Start, journal: Journal, proxy: TcpProxy
) -> None:
    """The lease is far from its end, so it is not the rescue that returns them."""
    worker = start("--poll-interval", NEVER, database=proxy.url)
    wait_until_listening()
    rule = proxy.cut_on(CLAIM, when="after")
    job = tasks.note.enqueue(journal.folder, "done")
    rule.wait()
    row = wait_for_status(job, "successful", worker=worker)
    assert (row.attempts, row.lost_count) == (1, 0)
    assert journal.lines() == ["done"]
    assert "gave back 1 job of a claim whose answer was lost" in worker.output()
    assert worker.stop() == 0


def test_a_claim_that_the_server_never_saw_is_made_again(
    start: Start, journal: Journal, proxy: TcpProxy
) -> None:
    worker = start("--poll-interval", NEVER, database=proxy.url)
    wait_until_listening()
    rule = proxy.cut_on(CLAIM, when="before")
    job = tasks.note.enqueue(journal.folder, "done")
    rule.wait()
    row = wait_for_status(job, "successful")
    assert row.attempts == 1
    assert "gave back" not in worker.output()


def test_connections_that_do_not_answer_are_cut(
    start: Start, journal: Journal, proxy: TcpProxy
) -> None:
    """A frozen server or network; nothing would ever come back on these connections."""
    worker = start(
        "--poll-interval", "0.2", database=proxy.url, modules=("tests.process.impatient",)
    )
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    proxy.drop()
    journal.open_gate()
    worker.wait_for_output("connection of role pump does not answer; cut")
    assert get_job(job.id).status == "running"
    proxy.dropping = False  # new connections work; those of before would wait for ever
    row = wait_for_status(job, "successful", worker=worker)
    assert row.attempts == 1
    assert journal.lines() == ["start job 1", "end job 1"]


def test_a_worker_whose_lease_cannot_be_renewed_ends_its_jobs_in_time(
    start: Start, journal: Journal, proxy: TcpProxy
) -> None:
    """S2.21: also if the renewal is not refused but gets no answer."""
    worker = start("--lease-seconds", "2", database=proxy.url)
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    proxy.drop()
    worker.wait_for_output("ends its jobs")
    worker.wait_for_output("release tests.process.tasks.pass_gate")
    proxy.undrop()
    journal.open_gate()
    wait_for_status(job, "successful", worker=worker)
    assert journal.lines()[0] == "start job 1"
    assert "end job 1" not in journal.lines()[:-1]


def test_a_worker_stops_although_the_database_does_not_answer(
    start: Start, journal: Journal, proxy: TcpProxy
) -> None:
    """S4.15."""
    options = {"database": proxy.url, "modules": ("tests.process.impatient",)}
    asked, ordered = (start("--shutdown-timeout", "0.2", **options) for _ in range(2))
    jobs = [tasks.pass_gate.enqueue(journal.folder, name) for name in "ab"]
    journal.wait_for("start a 1", "start b 1")
    proxy.freeze()
    asked.send(signal.SIGTERM)
    ordered.send(signal.SIGQUIT)
    assert (asked.wait(), ordered.wait()) == (0, 131)
    proxy.thaw()
    for job in jobs:
        assert get_job(job.id).status in ("running", "ready")  # rescued, or given back late
