"""A worker of which a part stands still does not keep its place: it ends, or is ended."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest

from tests import tasks as common
from tests.factories import get_job, make_job
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import Journal, fetch_rows, wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

WATCHFUL = ("tests.process.watchful",)
IMPATIENT = ("tests.process.impatient",)


@pytest.mark.time_limit(90)
def test_a_child_that_is_frozen_is_killed_and_replaced(start: Start, journal: Journal) -> None:
    flags = ("--processes", "2", "-c", "1", "--lease-seconds", "1", "--poll-interval", "0.2")
    worker = start(*flags, modules=WATCHFUL, wait=False)
    job = tasks.keep_interpreter.enqueue(journal.folder)
    journal.wait_for("kept")
    worker.wait_for_output("ended with status -9; started again", timeout=40)
    assert wait_for_status(job, "failed", worker=worker).lost_count == 1
    wait_until(lambda: worker.output().count(" ready ") == 3, timeout=40, message=worker.output)
    wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
    assert worker.output().count("as if it were frozen; it is killed") == 1
    assert worker.stop() == 0


@pytest.mark.time_limit(90)
def test_children_that_were_paused_with_their_supervisor_are_let_alone(start: Start) -> None:
    flags = ("--processes", "2", "-c", "1", "--lease-seconds", "1")
    worker = start(*flags, modules=WATCHFUL, wait=False)
    wait_until(lambda: worker.output().count(" ready ") == 2, message=worker.output)
    worker.pause()
    # For longer than silence is borne.
    wait_until(
        lambda: (
            fetch_rows("SELECT max(lease_expires_at) < now() - interval '6 s' FROM pgjobs_worker")
            == [(True,)]
        ),
        timeout=40,
    )
    worker.resume()
    for _ in range(3):
        wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
    wait_until(
        lambda: fetch_rows("SELECT count(*) FROM pgjobs_worker WHERE ended_at IS NULL") == [(2,)],
        message=worker.output,
    )
    assert worker.stop() == 0
    assert "killed" not in worker.output()


def test_a_worker_whose_threads_cannot_log_ends(start: Start, journal: Journal) -> None:
    """A task keeps the lock of the log's handler, and every thread that logs waits for it."""
    worker = start("-c", "1", modules=WATCHFUL)
    tasks.keep_log.enqueue(journal.folder)
    assert worker.wait() == 75
    assert journal.count("kept") == 1
    assert "a log handler has stood still for" in worker.output()
    # Where it stands; Python 3.13 takes the lock without a call of its own.
    assert re.search(r"__init__\.py:\d+ (acquire|handle) < ", worker.output())


def test_a_key_that_hangs_loses_its_job_and_no_other(start: Start) -> None:
    """A key of a row that no enqueue wrote is made by the pump."""
    hanging = make_job(
        tasks.keyed_by_what_hangs.module_path, kwargs={"number": 1}, max_losses=1, priority=1
    )
    behind = common.add.using(max_losses=1).enqueue(1, 2)
    worker = start("-c", "1", modules=WATCHFUL)
    assert worker.wait() == 75
    assert get_job(behind.id).status in ("ready", "successful")
    assert get_job(behind.id).lost_count == 0
    other = start("-c", "1", "--lease-seconds", "1", modules=WATCHFUL)
    wait_for_status(behind, "successful", worker=other)
    wait_until(lambda: get_job(hanging).status == "failed", message=other.output)
    assert get_job(hanging).lost_count == 1


def test_a_log_that_stands_still_costs_no_job_an_outcome_or_a_start(
    start: Start, journal: Journal
) -> None:
    """What has ended is written, and what cannot begin goes back."""
    keeping = tasks.keep_log.using(max_losses=1).enqueue(journal.folder)
    behind = common.add.using(max_losses=1).enqueue(1, 2)
    worker = start("-c", "2", modules=WATCHFUL)
    assert worker.wait() == 75
    start("-c", "1", "--poll-interval", "0.2")
    row = wait_for_status(behind, "successful")
    assert (row.attempts, row.lost_count) == (1, 0)
    assert get_job(keeping.id).status == "successful"


def test_a_worker_whose_pump_stands_still_ends(start: Start, journal: Journal) -> None:
    worker = start("-c", "2", "--lease-seconds", "1", modules=WATCHFUL)
    tasks.stop_pump.enqueue(journal.folder)
    journal.wait_for("stopped")
    # The pump rests while it knows of no job; the free slot makes it claim this one.
    common.add.enqueue(1, 2)
    assert worker.wait() == 75
    assert "the pump has stood still for" in worker.output()


def test_term_ends_a_worker_whose_threads_cannot_log(start: Start, journal: Journal) -> None:
    worker = start("-c", "1", "--shutdown-timeout", "0", modules=IMPATIENT)
    tasks.keep_log.enqueue(journal.folder)
    journal.wait_for("kept")
    assert worker.stop() == 75
    assert "the worker does not end" in worker.output()


def test_quit_ends_a_worker_whose_threads_cannot_log(start: Start, journal: Journal) -> None:
    worker = start("-c", "1", modules=IMPATIENT)
    tasks.keep_log.enqueue(journal.folder)
    journal.wait_for("kept")
    assert worker.stop(signal.SIGQUIT) == 131
    [(ended,)] = fetch_rows("SELECT ended_at IS NOT NULL FROM pgjobs_worker")
    assert ended


def test_a_limit_ends_a_worker_whose_threads_cannot_log(start: Start, journal: Journal) -> None:
    flags = ("--max-time", "1", "--shutdown-timeout", "0", "-c", "1")
    tasks.keep_log.enqueue(journal.folder)
    worker = start(*flags, modules=IMPATIENT, wait=False)
    assert worker.wait() == 75
    assert journal.count("kept") == 1
