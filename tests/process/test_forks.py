"""Processes and threads that tasks start: their end is theirs, and the worker's is its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests import tasks as common
from tests.helpers import WorkerProcess, wait_until
from tests.models import Effect
from tests.process import tasks
from tests.process.support import Journal, wait_for_count, wait_for_status
from tests.servers import is_alive

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]


@pytest.mark.parametrize("flags", [(), ("--processes", "2")], ids=["worker", "supervisor"])
def test_a_pool_of_a_task_ends_neither_the_worker_nor_its_supervisor(
    start: Start, flags: tuple[str, ...]
) -> None:
    worker = start("-c", "2", *flags)
    for _ in range(5):
        job = tasks.use_pool.enqueue()
        assert wait_for_status(job, "successful", worker=worker).result == 3
    wait_for_status(common.add.enqueue(1, 2), "successful", worker=worker)
    assert "no new jobs" not in worker.output()
    assert worker.stop() == 0


def test_a_forked_process_ends_when_it_is_terminated(start: Start) -> None:
    worker = start("-c", "2")
    for _ in range(10):
        job = tasks.end_child.enqueue()
        assert wait_for_status(job, "successful", worker=worker).result == -signal.SIGTERM
    assert "no new jobs" not in worker.output()


def test_a_daemonic_process_ends_with_its_worker(start: Start) -> None:
    worker = start("-c", "1")
    child = wait_for_status(tasks.leave_child.enqueue(True), "successful", worker=worker).result
    assert worker.stop() == 0
    wait_until(lambda: not is_alive(child))


@pytest.mark.parametrize(
    ("task", "arguments"),
    [(tasks.leave_thread, ()), (tasks.leave_child, (False,))],
    ids=["thread", "process"],
)
def test_what_a_task_leaves_behind_does_not_keep_the_worker(
    start: Start, task: Any, arguments: tuple[Any, ...]
) -> None:
    worker = start("-c", "1")
    child = wait_for_status(task.enqueue(*arguments), "successful", worker=worker).result
    try:
        assert worker.stop() == 0
        assert "Bye." in worker.output()
        assert "what a task has started does not end" in worker.output()
    finally:
        if child is not None:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def test_a_child_that_ends_unasked_is_replaced_whatever_it_says(start: Start) -> None:
    worker = start("--processes", "2", "-c", "1", "--lease-seconds", "1")
    job = tasks.exit_quietly.using(max_losses=1).enqueue()
    wait_for_status(job, "failed", worker=worker)
    worker.wait_for_output("ended with status 0; started again")
    wait_until(lambda: worker.output().count(" ready ") == 3, message=worker.output)
    assert worker.stop() == 0


@pytest.mark.parametrize(("ending", "status"), [("return", 0), ("raise", 1), ("exit", 3)])
@pytest.mark.parametrize("kind", ["fork", "fork_atomic", "fork_async"])
def test_a_forked_child_that_leaves_its_task_ends_and_runs_no_job_of_its_worker(
    start: Start, journal: Journal, kind: str, ending: str, status: int
) -> None:
    note: Any = tasks.note_async if kind == "fork_async" else tasks.note
    once = note.using(max_attempts=1, max_losses=1)
    once.enqueue_many([(journal.folder, f"before {number}") for number in range(5)])
    job = getattr(tasks, kind).enqueue(journal.folder, ending)
    once.enqueue_many([(journal.folder, f"behind {number}") for number in range(20)])
    worker = start("-c", "1", pgjobs={"ASYNC_CONCURRENCY": 1})
    assert wait_for_status(job, "successful", worker=worker).result == status
    wait_for_count(26, status="successful")
    later = tasks.query.enqueue(1)
    wait_for_status(later, "successful", worker=worker)
    assert worker.stop() == 0
    assert len(journal.lines()) == len(set(journal.lines())) == 26
    assert Effect.objects.count() == (kind == "fork_atomic")
