"""`result.wait()` beside a worker that runs the job, and in a job of that worker."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgjobs import task
from tests import tasks
from tests.factories import get_job
from tests.worker.support import Gate, StartThread
from tests.worker.tasks import wait_at_gate

pytestmark = pytest.mark.django_db(transaction=True)


@task(max_attempts=1)
def add_in_another_job(a: int, b: int) -> Any:
    """Let another job add, and wait for it."""
    return tasks.add.enqueue(a, b).wait(60).return_value


@task(max_attempts=1)
async def add_in_another_job_async(a: int, b: int) -> Any:
    """Let another job add, and wait for it on the event loop."""
    result = await tasks.add.aenqueue(a, b)
    return (await result.async_wait(60)).return_value


@task(atomic=True, max_attempts=1)
def add_in_an_atomic_job() -> None:
    """Wait for what no worker sees."""
    tasks.add.enqueue(1, 2).wait(60)


def test_a_caller_waits_for_what_a_worker_returns(start_thread: StartThread, gate: Gate) -> None:
    start_thread()
    result = wait_at_gate.enqueue({"a": 1})
    gate.wait_entered()
    with pytest.raises(TimeoutError, match=f"job {result.id} is still running after 0.1 s"):
        result.wait(0.1)
    gate.open()
    assert result.wait(60).return_value == {"a": 1}


@pytest.mark.parametrize("waiting", [add_in_another_job, add_in_another_job_async])
def test_a_job_may_wait_for_another_if_there_is_a_slot(
    start_thread: StartThread, waiting: Any
) -> None:
    start_thread(concurrency=2)
    assert waiting.enqueue(1, 2).wait(60).return_value == 3


def test_an_atomic_job_may_not_wait(start_thread: StartThread) -> None:
    start_thread()
    result = add_in_an_atomic_job.enqueue()
    assert result.wait(60).errors
    [error] = get_job(result.id).errors
    assert "expected no open transaction" in error["traceback"]
