"""The supervisor and its children: whoever ends, no job is left to a dead process."""

from __future__ import annotations

import itertools
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests import tasks as common
from tests.factories import count_jobs, get_job
from tests.helpers import ROOT, WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import Journal, children_of, fetch_rows, job_id, wait_for_status
from tests.servers import is_alive

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
# Two interpreters one after the other.
SLOW_SECONDS = 40.0

RELOADED = """
from django_pgjobs import task

@task
def answer():
    return {value}
"""


def start_two(start: Start, *flags: str, **options: object) -> WorkerProcess:
    """Start a supervisor with two processes, and wait until both are registered."""
    worker = start("--processes", "2", "-c", "2", *flags, wait=False, **options)
    wait_until(lambda: len(live_workers()) == 2, message=worker.output)
    return worker


def live_workers() -> set[int]:
    """Return the process ids of the workers that have not said goodbye."""
    return {pid for (pid,) in fetch_rows("SELECT pid FROM pgjobs_worker WHERE ended_at IS NULL")}


def pids(processes: list[psutil.Process]) -> set[int]:
    """Return the process ids."""
    return {process.pid for process in processes}


def test_children_stop_by_themselves_when_their_supervisor_is_killed(
    start: Start, journal: Journal
) -> None:
    worker = start_two(start)
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    children = pids(children_of(worker))
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    journal.open_gate()  # they stop as after TERM: running jobs finish
    wait_until(lambda: not any(is_alive(pid) for pid in children), message=worker.output)
    assert live_workers() == set()
    assert (get_job(job.id).status, get_job(job.id).attempts) == ("successful", 1)


def test_a_killed_child_is_replaced_and_its_job_runs_again(start: Start, journal: Journal) -> None:
    """Recovery in bounded time."""
    worker = start_two(start, "--lease-seconds", "1")
    before = pids(children_of(worker))
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    [(victim,)] = fetch_rows(
        "SELECT pid FROM pgjobs_worker WHERE id = (SELECT worker_id FROM pgjobs_job WHERE id = %s)",
        job_id(job),
    )
    os.kill(victim, signal.SIGKILL)
    journal.open_gate()
    row = wait_for_status(job, "successful", worker=worker)
    assert (row.attempts, row.lost_count) == (2, 1)
    wait_until(lambda: len(live_workers() - {victim}) == 2, message=worker.output)
    assert len(pids(children_of(worker)) & before) == 1
    assert "ended with status -9; started again" in worker.output()
    assert worker.stop() == 0


def test_hup_replaces_the_children_when_their_jobs_have_finished(
    start: Start, journal: Journal
) -> None:
    """S1.4, S1.12: new code without a lost job."""
    worker = start_two(start)
    before = pids(children_of(worker))
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    worker.send(signal.SIGHUP)
    worker.wait_for_output("HUP: no new jobs; waiting for 1")
    journal.open_gate()
    row = wait_for_status(job, "successful")
    assert row.attempts == 1
    wait_until(lambda: len(live_workers()) == 2 and not live_workers() & before)
    wait_for_status(common.add.enqueue(1, 2), "successful")
    assert worker.stop() == 0
    assert live_workers() == set()


@pytest.mark.time_limit(90)
def test_hup_replaces_one_child_after_the_other(start: Start, journal: Journal) -> None:
    """While one ends, the other takes jobs."""
    worker = start_two(start, "--queues", "gate:1,*")
    wait_until(lambda: worker.output().count(" ready ") == 2)
    before = pids(children_of(worker))
    waiting = tasks.pass_gate.using(queue_name="gate")
    jobs = [waiting.enqueue(journal.folder, str(number)) for number in range(2)]
    journal.wait_for("start 0 1", "start 1 1")
    worker.send(signal.SIGHUP)
    worker.wait_for_output("HUP: no new jobs")
    for _ in range(3):
        wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
    assert worker.output().count("HUP: no new jobs") == 1
    journal.open_gate()
    wait_until(
        lambda: len(live_workers()) == 2 and not live_workers() & before,
        timeout=SLOW_SECONDS,
        message=worker.output,
    )
    for job in jobs:
        wait_for_status(job, "successful")
    # Its row is in the table before it says so.
    wait_until(lambda: worker.output().count(" ready ") == 4)
    assert [line.split()[1] for line in worker.output().splitlines() if has_stopped(line)] == [
        "ready", "ready", "stop", "stop", "ready", "stop", "stop", "ready",
    ]  # fmt: skip
    assert worker.stop() == 0


def has_stopped(line: str) -> bool:
    """Is it the line of a worker that begins, is asked to end, or ends?"""
    return bool(re.match(r"\S+ (ready|stop) ", line))


@pytest.mark.time_limit(90)
def test_hup_and_usr2_wait_for_a_process_that_is_starting(start: Start, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    worker = start(
        "--processes", "2", "-c", "1",
        wait=False,
        modules=("tests.process.slow_start",),
        env={"TESTS_MAY_START": str(gate)},
    )  # fmt: skip
    gate.touch()
    wait_until(
        lambda: worker.output().count(" ready ") == 2, timeout=SLOW_SECONDS, message=worker.output
    )
    gate.unlink()
    victim = min(children_of(worker), key=lambda child: child.pid)
    victim.send_signal(signal.SIGHUP)
    wait_until(
        lambda: victim.pid not in pids(children_of(worker)) and len(children_of(worker)) == 2
    )
    [starting] = [child for child in children_of(worker) if child.pid not in live_workers()]
    starting.send_signal(signal.SIGHUP)
    starting.send_signal(signal.SIGUSR2)
    gate.touch()
    wait_until(
        lambda: (
            starting.pid not in pids(children_of(worker)) and worker.output().count(" ready ") == 4
        ),
        timeout=SLOW_SECONDS,
        message=worker.output,
    )
    assert "ended with status" not in worker.output()
    assert worker.stop() == 0


def test_hup_without_a_supervisor_asks_to_be_started_again(start: Start) -> None:
    assert start().stop(signal.SIGHUP) == 76


def test_term_reaches_the_children_and_the_second_one_ends_them_at_once(
    start: Start, journal: Journal
) -> None:
    worker = start_two(start)
    children = pids(children_of(worker))
    jobs = [tasks.block.enqueue(journal.folder, str(number)) for number in range(4)]
    journal.wait_for(*(f"start {number}" for number in range(4)))
    worker.send(signal.SIGTERM)
    worker.wait_for_output("waiting for 2")
    wait_until(lambda: worker.output().count("waiting for 2") == 2)
    assert worker.is_running
    worker.send(signal.SIGTERM)
    assert worker.wait() == 130
    assert not any(is_alive(pid) for pid in children)
    assert count_jobs(status="ready", attempts=0) == len(jobs)


def test_quit_ends_the_children_at_once(start: Start) -> None:
    worker = start_two(start)
    assert worker.stop(signal.SIGQUIT) == 131
    assert live_workers() == set()


def test_a_supervisor_that_is_told_to_stop_while_its_children_start_ends(start: Start) -> None:
    workers = [start("--processes", "2", wait=False) for _ in range(2)]
    for worker in workers:
        worker.wait_for_output("Ctrl-C to stop")
    wait_until(lambda: all(children_of(worker) for worker in workers))
    for worker in workers:
        worker.send(signal.SIGTERM)
    for worker in workers:
        assert worker.wait() == 0, worker.output()


def test_a_changed_file_restarts_the_worker_after_its_jobs(
    start: Start, journal: Journal, tmp_path: Path
) -> None:
    module = tmp_path / "reloaded_tasks.py"
    module.write_text(RELOADED.format(value=1))
    worker = start(
        "--reload",
        modules=("reloaded_tasks",),
        env={"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    first = enqueue_answer()
    assert wait_for_status(first, "successful", worker=worker).result == 1
    job = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    module.write_text(RELOADED.format(value=2))
    future = itertools.count(2_000_000_000)

    def touched_and_noticed() -> bool:
        # Again and again: Django's reloader notices changes since its own first look only.
        os.utime(module, (next(future),) * 2)
        return "reloaded_tasks.py changed: no new jobs; waiting for 1" in worker.output()

    wait_until(touched_and_noticed, interval=0.1, message=worker.output)
    journal.open_gate()
    assert wait_for_status(job, "successful", worker=worker).attempts == 1
    assert wait_for_status(enqueue_answer(), "successful", worker=worker).result == 2
    assert worker.stop() == 0
    assert count_jobs(status="successful", attempts=1) == 3


def enqueue_answer() -> int:
    """Enqueue the task of the module that is reloaded."""
    [(row_id,)] = fetch_rows(
        "INSERT INTO pgjobs_job (task_path) VALUES ('reloaded_tasks.answer') RETURNING id"
    )
    return int(row_id)
