"""Queues of which so many jobs may run: when a place becomes free, the next job starts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from django.db import connection

from django_pgjobs.models import QueueSettings
from django_pgjobs.worker.upkeep import look, watch
from tests.factories import get_job, get_worker, make_job
from tests.helpers import some_always, wait_until
from tests.worker.support import NEVER, Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]

RESTLESS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name IN ('pgjobs pump', 'pgjobs upkeep')
    AND (
        state <> 'idle' OR clock_timestamp() - state_change < interval '0.3 s'
        OR query_start < (SELECT max(enqueued_at) FROM pgjobs_job)
    )
"""


def does_the_worker_rest() -> bool:
    """Has it looked and claimed since the last enqueue, and sent nothing for a while?"""
    with connection.cursor() as cursor:
        cursor.execute(RESTLESS)
        return not cursor.fetchone()[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "keys"),
    some_always(
        product(["row", "slots"], [(None, "a"), ("a", None), ("a", "b"), (None, None)]), every=3
    ),
    ids=str,
)
def test_a_place_of_a_limited_queue_that_becomes_free_is_taken_at_once(
    start_thread: Start,
    gate: Gate,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    keys: tuple[str | None, str | None],
) -> None:
    """Whether the job that ends, or the one that waits, has a key or not."""
    monkeypatch.setattr(look, "FIRST_GAP_SECONDS", NEVER)
    monkeypatch.setattr(look, "LISTEN_AFTER_SECONDS", NEVER)
    # Nor does it look because it has taken the watch again.
    monkeypatch.setattr(watch, "LONG_SECONDS", NEVER)
    if limit == "row":
        QueueSettings.objects.create(queue_name="default", max_running=1)
    slots = {"default": 1} if limit == "slots" else {}
    worker = start_thread(poll_interval=NEVER, concurrency=2, queue_slots=slots)
    wait_until(lambda: get_worker(worker.id).listening)
    first, second = keys
    make_job("tests.worker.tasks.wait_at_gate", concurrency_key=first, args=[])
    gate.wait_entered()
    job_id = make_job(concurrency_key=second)
    wait_until(does_the_worker_rest)
    gate.open()
    wait_until(lambda: get_job(job_id).status == "successful")
