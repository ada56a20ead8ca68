"""A transaction of the project has locked many waiting jobs of one queue: others go on.

Jobs that a claim cannot take are not to get the slots that others could have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection

from django_pgjobs.models import QueueSettings
from django_pgjobs.queries.notifications import notify_workers
from tests.factories import count_jobs, get_worker, make_job, make_jobs
from tests.helpers import wait_until
from tests.worker.support import NEVER, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
Open = Callable[..., psycopg.Connection]
ADD = "tests.tasks.add"


@contextmanager
def locked(open_connection: Open, condition: str) -> Iterator[None]:
    """Lock waiting jobs, and let go of them at the end."""
    holder = open_connection(autocommit=False)
    holder.execute(f"SELECT FROM pgjobs_job_live WHERE {condition} FOR UPDATE")
    try:
        yield
    finally:
        holder.rollback()


@pytest.mark.parametrize(
    "settings",
    [None, {"boost": 1}, {"max_running": 100}, {"max_running": 1}],
    ids=["plain", "boosted", "limited", "serial"],
)
def test_many_locked_jobs_of_one_queue_do_not_hold_up_another_queue(
    start_thread: Start, open_connection: Open, settings: dict[str, int] | None
) -> None:
    """With a boost or a limit they are chosen in another statement than without."""
    if settings:
        QueueSettings.objects.create(queue_name="locked", **settings)
    make_jobs(500, ADD, queue_name="locked")
    make_jobs(10, ADD, queue_name="other")
    with locked(open_connection, "queue_name = 'locked'"):
        start_thread(concurrency=2)
        wait_until(lambda: count_jobs(queue_name="other", status="successful") == 10)
    wait_until(lambda: count_jobs(status="successful") == 510)


@pytest.mark.slow
@pytest.mark.parametrize("max_running", [None, 100], ids=["free", "limited"])
@pytest.mark.parametrize("limit", [1, 3])
def test_locked_jobs_of_many_keys_do_not_hold_up_other_keys_and_queues(
    start_thread: Start, open_connection: Open, max_running: int | None, limit: int
) -> None:
    if max_running:
        QueueSettings.objects.create(queue_name="keyed", max_running=max_running)
    for number in range(150):
        key = {"concurrency_key": f"a:{number // 3}", "concurrency_limit": limit}
        make_job(ADD, queue_name="keyed", priority=5, **key)
    for number in range(20):
        make_job(ADD, queue_name="keyed", concurrency_key=f"b:{number % 5}")
    make_jobs(10, ADD, queue_name="other")
    with locked(open_connection, "concurrency_key LIKE 'a:%'"):
        start_thread(concurrency=2)
        wait_until(lambda: count_jobs(status="successful") == 30)
    wait_until(lambda: count_jobs(status="successful") == 180)


@pytest.mark.slow
def test_locked_jobs_of_a_limited_queue_do_not_hold_up_the_others_of_it(
    start_thread: Start, open_connection: Open
) -> None:
    QueueSettings.objects.create(queue_name="limited", max_running=100)
    make_jobs(300, ADD, queue_name="limited", priority=5)
    make_jobs(10, ADD, queue_name="limited")
    with locked(open_connection, "priority = 5"):
        start_thread(concurrency=2)
        wait_until(lambda: count_jobs(status="successful") == 10)
    wait_until(lambda: count_jobs(status="successful") == 310)


def test_a_job_that_was_locked_when_its_worker_was_told_of_it_is_not_left_to_the_poll(
    start_thread: Start, open_connection: Open
) -> None:
    """Nobody tells when a row is unlocked."""
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    silent = open_connection()
    silent.execute("SET session_replication_role = replica")  # no triggers
    silent.execute("INSERT INTO pgjobs_job (task_path, args) VALUES (%s, '[1, 2]')", [ADD])
    look = worker.runner.upkeep._duties.look
    # As after having been told of all for long.
    look._gap = NEVER
    with locked(open_connection, "true"), connection.cursor() as cursor:
        told_at = time.monotonic()
        notify_workers(cursor, queue_names=["default"])
        wait_until(lambda: look._looked_at > told_at and worker.runner.pump.outlook.is_idle)
    wait_until(lambda: count_jobs(status="successful") == 1)
