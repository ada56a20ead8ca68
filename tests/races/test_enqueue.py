"""Enqueueing in a transaction, while workers look, listen and go to sleep."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from django.db import transaction

from django_pgjobs.queries.connection import OwnConnection
from tests import tasks
from tests.factories import count_jobs, get_job, get_worker, make_worker
from tests.helpers import wait_until
from tests.models import Effect
from tests.worker.support import NEVER, ThreadedWorker, claim, counted_round_trips, ids

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

Start = Callable[..., ThreadedWorker]
Open = Callable[..., psycopg.Connection]
INSERT = (
    "INSERT INTO pgjobs_job (task_path, args) VALUES ('tests.tasks.add', '[1, 2]') RETURNING id"
)


def insert(connection: psycopg.Connection) -> int:
    """Insert a job by plain SQL and return its id."""
    row = connection.execute(INSERT).fetchone()
    assert row is not None
    return int(row[0])


def wait_until_done(*job_ids: int) -> None:
    wait_until(
        lambda: (
            count_jobs(status="successful") == len(job_ids)
            and {get_job(job_id).status for job_id in job_ids} == {"successful"}
        )
    )


def test_a_job_does_not_exist_before_the_commit_and_not_after_a_rollback(
    own: OwnConnection,
) -> None:
    """S5.2, S5.4."""
    worker = make_worker()
    with transaction.atomic():
        Effect.objects.create(key="order")
        tasks.add.enqueue(1, 2)
        assert claim(own, worker) == []
        transaction.set_rollback(True)
    assert claim(own, worker) == []
    assert (count_jobs(), Effect.objects.count()) == (0, 0)
    with transaction.atomic():
        job = tasks.add.enqueue(1, 2)
        assert claim(own, worker) == []
    assert ids(claim(own, worker)) == [int(job.id)]


def test_a_worker_runs_a_job_after_the_commit_and_sees_what_was_committed_with_it(
    start_thread: Start,
) -> None:
    """S5.3: the poll would come in an hour."""
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    with counted_round_trips() as counts:
        with transaction.atomic():
            Effect.objects.create(key="x")
            job = tasks.record.enqueue("y")
            tasks.add.using(queue_name="other").enqueue(1, 2)
            # The worker looks in vain in the meantime.
            wait_until(lambda: len(counts.get("upkeep", [])) >= 1)
            assert get_job(job.id).status == "ready"
    wait_until(lambda: count_jobs(status="successful") == 2)
    assert set(Effect.objects.values_list("key", flat=True)) == {"x", "y"}


@pytest.mark.slow
def test_a_job_whose_transaction_began_before_the_worker_listened_is_met_soon(
    start_thread: Start, open_connection: Open
) -> None:
    """A lost wake-up: nobody was to be notified when it was inserted,
    and nobody saw it when the worker looked last.
    """
    enqueuer = open_connection(autocommit=False)
    job_id = insert(enqueuer)
    with counted_round_trips() as counts:
        worker = start_thread(poll_interval=NEVER)
        wait_until(lambda: get_worker(worker.id).listening)
        seen = len(counts["upkeep"])
        wait_until(lambda: len(counts["upkeep"]) > seen)  # it has looked again, in vain
    enqueuer.commit()
    wait_until_done(job_id)


def test_a_commit_between_the_last_look_and_listening_is_met(
    start_thread: Start, open_connection: Open
) -> None:
    """Whenever it comes on the way to sleep: one look follows after the worker listens."""
    enqueuers = [open_connection(autocommit=False) for _ in range(8)]
    job_ids = [insert(enqueuer) for enqueuer in enqueuers]
    with counted_round_trips() as counts:
        start_thread(poll_interval=NEVER)
        for number, enqueuer in enumerate(enqueuers, start=1):
            wait_until(lambda number=number: len(counts.get("upkeep", [])) >= number, interval=0.0)
            enqueuer.commit()
    wait_until_done(*job_ids)


@pytest.mark.slow
def test_a_job_that_commits_after_younger_ones_ran_is_not_left_behind(
    start_thread: Start, open_connection: Open
) -> None:
    """The order of ids is not the order of commits; floors do not hide it."""
    enqueuer = open_connection(autocommit=False)
    late = insert(enqueuer)
    start_thread(poll_interval=NEVER, concurrency=1)
    younger = [int(tasks.add.enqueue(1, 2).id) for _ in range(60)]
    wait_until_done(*younger)
    assert late < min(younger)
    enqueuer.commit()
    wait_until_done(late, *younger)


@pytest.mark.slow
def test_enqueuers_and_workers_at_full_speed_lose_and_repeat_nothing(
    start_thread: Start, open_connection: Open
) -> None:
    """S2.18: two workers, transactions that end in any order, every other one rolled back."""
    for _ in range(2):
        start_thread(poll_interval=NEVER, concurrency=2)
    connections = [open_connection(autocommit=False) for _ in range(4)]
    committed: list[int] = []
    for number in range(120):
        enqueuer = connections[number % 4]
        job_id = insert(enqueuer)
        if number % 8 < 4:
            enqueuer.commit()
            committed.append(job_id)
        else:
            enqueuer.rollback()
    wait_until_done(*committed)
    assert count_jobs(attempts=1) == count_jobs() == len(committed)
