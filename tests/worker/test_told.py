"""What a worker tells the others of: jobs that may start, and that are not new."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgjobs import Task, cancel
from django_pgjobs.queries.bulk import discard_jobs
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.expiry import expire_jobs
from django_pgjobs.worker.upkeep.freed_keys import FreedKeys
from tests.factories import get_job, make_job, make_worker
from tests.helpers import wait_until
from tests.worker import tasks as gate_tasks
from tests.worker.support import Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
Open = Callable[..., psycopg.Connection]
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("task", [gate_tasks.wait_at_gate, gate_tasks.wait_at_gate_atomic])
def test_a_key_that_became_free_is_told_to_workers_that_may_start_what_waits(
    start_thread: Start, gate: Gate, open_connection: Open, task: Task
) -> None:
    """This worker does not serve the queue of the job that waits."""
    start_thread(queues=("default",))
    task.using(concurrency_key="shop:1").enqueue()
    gate.wait_entered()
    make_worker(listening=True)
    listener = open_connection()
    listener.execute("LISTEN pgjobs")
    make_job(concurrency_key="shop:1", queue_name="other")
    [enqueued] = [n.payload for n in listener.notifies(timeout=15, stop_after=1)]
    gate.open()
    [freed] = [n.payload for n in listener.notifies(timeout=15, stop_after=1)]
    assert (enqueued, freed) == ("other", "other")


def test_a_job_that_a_worker_gives_back_at_its_end_is_told_to_the_others(
    start_thread: Start, gate: Gate, open_connection: Open
) -> None:
    job = gate_tasks.wait_at_gate.enqueue()
    worker = start_thread(shutdown_timeout=0.0)
    gate.wait_entered()
    listener = open_connection()
    listener.execute("LISTEN pgjobs")
    worker.stop()
    assert get_job(job.id).status == "ready"
    assert [n.payload for n in listener.notifies(timeout=15, stop_after=1)] == ["default"]


@pytest.mark.parametrize("task", [gate_tasks.wait_at_gate, gate_tasks.wait_at_gate_atomic])
def test_a_key_that_became_free_at_the_end_of_a_worker_is_told_to_the_others(
    start_thread: Start,
    gate: Gate,
    open_connection: Open,
    monkeypatch: pytest.MonkeyPatch,
    task: Task,
) -> None:
    """Its upkeep has ended before."""
    monkeypatch.setattr(FreedKeys, "due_at", lambda self, now: math.inf)
    task.using(concurrency_key="shop:1").enqueue()
    worker = start_thread()
    gate.wait_entered()
    make_worker(listening=True)
    make_job(concurrency_key="shop:1", queue_name="other")
    listener = open_connection()
    listener.execute("LISTEN pgjobs")
    worker.runner.ask_to_stop("the test is over")
    wait_until(lambda: worker.runner.state.stopping)
    gate.open()
    worker.join()
    assert [n.payload for n in listener.notifies(timeout=15, stop_after=1)] == ["other"]


def expire(cursor: Cursor, job_id: int) -> None:
    cursor.execute("UPDATE pgjobs_job SET expires_at = 'epoch' WHERE id = %s", [job_id])
    expire_jobs(cursor, max_jobs=10)


@pytest.mark.parametrize(
    "end",
    [
        lambda cursor, job_id: cancel(job_id),
        lambda cursor, job_id: discard_jobs(cursor, [job_id], note=""),
        expire,
    ],
    ids=["cancel", "discard", "expire"],
)
@pytest.mark.parametrize("key", ["shop:1", None])
def test_the_end_of_a_job_that_waited_is_told_if_others_may_have_waited_for_it(
    open_connection: Open, end: Callable[[Any, int], None], key: str | None
) -> None:
    """Its retry, say, blocked the key."""
    make_worker(listening=True)
    job_id = make_job(concurrency_key=key, due_at=LATER)
    listener = open_connection()
    listener.execute("LISTEN pgjobs")
    with connection.cursor() as cursor:
        end(cursor, job_id)
    make_job(queue_name="last")
    told = [n.payload for n in listener.notifies(timeout=15, stop_after=2 if key else 1)]
    assert told == (["default", "last"] if key else ["last"])
    assert get_job(job_id).status == "cancelled"
