"""How soon an idle worker finds a job, and what it must not see yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from django.db import transaction

from tests import tasks as common
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import (
    NEVER,
    Journal,
    backends_of,
    fetch_rows,
    terminate,
    wait_for_status,
    wait_until_listening,
)

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
IDLE = ("--poll-interval", NEVER)


def test_a_commit_wakes_an_idle_worker_and_nothing_before_it_does(
    start: Start, journal: Journal, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """S5.2, S5.3."""
    start(*IDLE)
    wait_until_listening()
    with transaction.atomic():
        job = tasks.note.enqueue(journal.folder, "inside")
        # Committed by somebody else, so the worker does look while the first is not committed.
        open_connection().execute(
            "INSERT INTO pgjobs_job (task_path, args) VALUES ('tests.process.tasks.note', %s)",
            [f'["{journal.folder}", "outside"]'],
        )
        journal.wait_for("outside")
        assert journal.lines() == ["outside"]
    wait_for_status(job, "successful")
    assert journal.lines() == ["outside", "inside"]


def test_a_job_of_a_rolled_back_transaction_never_runs(start: Start, journal: Journal) -> None:
    """Transactional enqueue."""
    start(*IDLE)
    wait_until_listening()
    with transaction.atomic():
        tasks.note.enqueue(journal.folder, "rolled back")
        transaction.set_rollback(True)
    wait_for_status(tasks.note.enqueue(journal.folder, "kept"), "successful")
    assert journal.lines() == ["kept"]


def test_a_plain_insert_is_a_full_enqueue(
    start: Start, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """S1.7, S3.4."""
    start(*IDLE)
    wait_until_listening()
    row = (
        open_connection()
        .execute(
            "INSERT INTO pgjobs_job (task_path, args) VALUES ('tests.tasks.add', '[1, 2]')"
            " RETURNING id"
        )
        .fetchone()
    )
    assert row is not None
    assert wait_for_status(row[0], "successful").result == 3


def test_a_job_for_later_wakes_an_idle_worker_when_its_time_comes(start: Start) -> None:
    """S1.22."""
    start(*IDLE)
    wait_until_listening()
    job = common.add.using(run_after=timedelta(seconds=0.5)).enqueue(1, 2)
    row = wait_for_status(job, "successful")
    assert row.started_at >= row.run_after


def test_a_job_that_nobody_announced_is_found_by_polling(
    start: Start, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """S2.6."""
    start("--poll-interval", "0.3")
    wait_until_listening()
    connection = open_connection()
    connection.execute("SET session_replication_role = replica")  # no triggers
    connection.execute(
        "INSERT INTO pgjobs_job (task_path, args) VALUES ('tests.tasks.add', '[1, 2]')"
    )
    wait_until(lambda: fetch_rows("SELECT FROM pgjobs_job WHERE status = 'successful'"))


def cut_off_upkeep() -> None:
    """End the connection of the upkeep; there may be another one already."""
    ended = backends_of("upkeep")
    terminate(ended)
    wait_until(lambda: set(ended).isdisjoint(backends_of("upkeep")))


def test_a_worker_whose_upkeep_was_cut_off_is_woken_again(start: Start) -> None:
    """S2.33."""
    worker = start(*IDLE)
    wait_until_listening()
    for _ in range(2):
        cut_off_upkeep()
        # Enqueued while nobody is listening: found by polling or the look after the reconnect.
        wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
        wait_until(lambda: backends_of("upkeep"), message=worker.output)
        wait_until_listening()
        wait_for_status(common.add.enqueue(3, 4), "successful")
    assert "upkeep failed" in worker.output()


def test_without_listen_jobs_are_found_by_polling(start: Start) -> None:
    """S2.33."""
    worker = start("--no-listen", "--poll-interval", "0.2")
    assert "listen  off" in worker.output()
    wait_for_status(common.add.enqueue(1, 2), "successful")
    assert not fetch_rows("SELECT FROM pgjobs_worker WHERE listening")
