"""Stopping a worker by signals: what finishes, what goes back, how it ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from django_pgjobs.declaring.tasks import Task
from django_pgjobs.worker.process import signal_pipe
from tests import tasks as common
from tests.factories import count_jobs, get_job
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import (
    NEVER,
    Journal,
    fetch_rows,
    wait_for_count,
    wait_for_status,
    wait_until_listening,
)

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]


def test_running_jobs_finish_and_buffered_ones_go_back_uncounted(
    start: Start, journal: Journal
) -> None:
    """S1.4, S4.12, S4.15."""
    worker = start("-c", "2", modules=("tests.process.hoarding",))
    # After short jobs a worker claims more than its slots can take.
    common.echo.enqueue_many([()] * 50)
    wait_for_count(50, status="successful")
    tasks.pass_gate.enqueue_many((journal.folder, str(number)) for number in range(20))
    wait_until(lambda: len(journal.lines()) == 2 and count_jobs(status="running") > 2)
    worker.send(signal.SIGTERM)
    wait_for_count(2, status="running")
    assert worker.is_running
    waiting = fetch_rows(
        "SELECT attempts, worker_ids, started_at, worker_id FROM pgjobs_job"
        " WHERE status = 'ready' GROUP BY 1, 2, 3, 4"
    )
    assert waiting == [(0, [], None, None)]
    journal.open_gate()
    assert worker.wait() == 0
    assert count_jobs(status="successful") == 52
    assert start("--drain").wait() == 0
    assert count_jobs(status="successful", attempts=1) == 70
    expected = [f"{verb} {number} 1" for verb in ("start", "end") for number in range(20)]
    assert sorted(journal.lines()) == sorted(expected)


def test_an_idle_worker_ends_at_once_and_says_goodbye(start: Start) -> None:
    worker = start("--poll-interval", NEVER)
    wait_until_listening()
    assert worker.stop() == 0
    assert fetch_rows("SELECT ended_at IS NULL, lost, listening FROM pgjobs_worker") == [
        (False, False, False)
    ]


@pytest.mark.parametrize("task", [tasks.pass_gate, tasks.pass_gate_async], ids=["sync", "async"])
def test_a_job_that_outlasts_the_shutdown_is_given_back_and_runs_again(
    start: Start, journal: Journal, task: Task
) -> None:
    """S1.3, S1.4, S1.12: at most one attempt, and yet it survives a deploy."""
    worker = start("--shutdown-timeout", "0.2")
    job = task.using(max_attempts=1).enqueue(journal.folder, "long")
    journal.wait_for("start long 1")
    assert worker.stop() == 0
    row = get_job(job.id)
    assert (row.status, row.attempts, row.worker_ids) == ("ready", 0, [])
    assert row.note == "released at shutdown"
    journal.open_gate()
    assert start("--drain").wait() == 0
    row = get_job(job.id)
    assert (row.status, row.attempts, row.lost_count) == ("successful", 1, 0)
    assert journal.lines() == ["start long 1", "start long 1", "end long 1"]


def test_a_worker_that_is_told_to_end_while_it_stops_for_hup_waits_for_its_jobs(
    start: Start, journal: Journal
) -> None:
    """`systemctl reload` and then `systemctl stop`: only the second TERM cuts jobs off."""
    worker = start()
    job = tasks.pass_gate.enqueue(journal.folder, "long")
    journal.wait_for("start long 1")
    worker.send(signal.SIGHUP)
    worker.wait_for_output("HUP: no new jobs; waiting for 1")
    worker.send(signal.SIGTERM)
    worker.wait_for_output("once more to give the jobs back at once")
    journal.open_gate()
    worker.wait()
    assert get_job(job.id).status == "successful"


def test_a_worker_that_stops_still_shows_its_stacks(start: Start, journal: Journal) -> None:
    """That is when somebody wants to know what it waits for."""
    worker = start()
    tasks.pass_gate.enqueue(journal.folder, "long")
    journal.wait_for("start long 1")
    worker.send(signal.SIGTERM)
    worker.wait_for_output("no new jobs; waiting for 1")
    worker.send(signal.SIGUSR2)
    worker.wait_for_output("most recent call first")
    journal.open_gate()
    assert worker.wait() == 0


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ((signal.SIGINT, signal.SIGINT), 130),
        ((signal.SIGTERM, signal.SIGTERM), 130),
        ((signal.SIGTERM, signal.SIGQUIT), 131),
        ((signal.SIGQUIT,), 131),
    ],
    ids=lambda value: "+".join(s.name for s in value) if isinstance(value, tuple) else "",
)
def test_a_second_signal_gives_everything_back_at_once(
    start: Start, journal: Journal, signals: tuple[signal.Signals, ...], code: int
) -> None:
    """S4.15: even when the job cannot be interrupted."""
    worker = start("-c", "2", "--shutdown-timeout", NEVER)
    job = tasks.block.enqueue(journal.folder, "blocked")
    other = tasks.pass_gate_async.enqueue(journal.folder, "async")
    journal.wait_for("start blocked", "start async 1")
    if len(signals) == 2:
        worker.send(signals[0])
        worker.wait_for_output("no new jobs; waiting for 2")
    assert worker.stop(signals[-1]) == code
    for given_back in (job, other):
        row = get_job(given_back.id)
        assert (row.status, row.attempts, row.worker_id) == ("ready", 0, None)


def test_a_worker_that_is_told_to_stop_while_it_starts_never_hangs(start: Start) -> None:
    """S4.15; a stop that a start-up erases would leave a worker that nobody can stop."""
    began_at = time.monotonic()
    delays = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    workers = [start("--poll-interval", NEVER, wait=False) for _ in delays]
    for worker, delay in zip(workers, delays, strict=True):
        time.sleep(max(0.0, began_at + delay - time.monotonic()))
        worker.send(signal.SIGTERM)
    assert {worker.wait() for worker in workers} <= {0, -signal.SIGTERM}


@pytest.mark.parametrize("words", ["Ctrl-C to stop", "ready "])
def test_a_worker_that_is_told_to_stop_as_soon_as_it_speaks_ends(start: Start, words: str) -> None:
    workers = [start("--poll-interval", NEVER, wait=False) for _ in range(2)]
    for worker in workers:
        worker.wait_for_output(words)
        worker.send(signal.SIGTERM)
    assert {worker.wait() for worker in workers} <= {0, -signal.SIGTERM}
    assert fetch_rows("SELECT FROM pgjobs_worker WHERE ended_at IS NULL") == []


def test_a_signal_that_comes_while_the_handlers_are_installed_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler that is there before its pipe would swallow the signal."""
    install = signal.signal

    def install_and_send(number: int, handler: Any) -> Any:
        previous = install(number, handler)
        if number == signal.SIGUSR1 and handler is signal_pipe._ignore:
            os.kill(os.getpid(), number)
        return previous

    monkeypatch.setattr(signal_pipe.signal, "signal", install_and_send)
    with signal_pipe.SignalPipe().installed() as pipe:
        assert pipe.wait(5) == [signal.SIGUSR1]


def test_a_quiet_worker_takes_no_more_jobs_and_shows_its_stacks(
    start: Start, journal: Journal
) -> None:
    worker = start()
    running = tasks.pass_gate.enqueue(journal.folder, "running")
    journal.wait_for("start running 1")
    worker.send(signal.SIGUSR1)
    worker.wait_for_output("quiet ")
    late = common.add.enqueue(1, 2)
    journal.open_gate()
    wait_for_status(running, "successful")
    worker.send(signal.SIGUSR2)
    worker.wait_for_output("most recent call first")
    assert get_job(late.id).status == "ready"
    assert worker.stop() == 0
    assert get_job(late.id).attempts == 0
