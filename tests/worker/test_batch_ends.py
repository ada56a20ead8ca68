"""Whatever ends a job of a batch, the batch is told: nothing is left to the sweep."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.models import Batch
from django_pgjobs.queries import expiry
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import make_job, make_running_job
from tests.helpers import execute
from tests.worker.test_batches import open_batch, settle
from tests.worker.test_give_back import release_unheld
from tests.worker.test_rescue import lost_worker, rescue

pytestmark = pytest.mark.django_db(transaction=True)


def counted(own: OwnConnection, flow: Batch) -> tuple[int, int, bool]:
    """Count the batch; return how many jobs failed, were cancelled, and whether it is complete."""
    flow.seal()
    settle(own, flow.pk)
    flow.refresh_from_db()
    return flow.failed, flow.cancelled, flow.tree_completed_at is not None


def add_running(flow: Batch, **columns: Any) -> Any:
    """Return a job of the batch that runs."""
    running = make_running_job(batch_id=flow.pk, **columns)
    execute("UPDATE pgjobs_batch SET jobs = jobs + 1 WHERE id = %s", flow.pk)
    return running


def test_one_that_has_expired(own: OwnConnection) -> None:
    flow = open_batch()
    make_job(batch_id=flow.pk, expires_at="2020-01-01T00:00:00Z")
    with own.cursor() as cursor:
        assert len(expiry.expire_jobs(cursor, max_jobs=9)) == 1
    assert counted(own, flow) == (0, 1, True)


def test_one_that_was_discarded(own: OwnConnection) -> None:
    flow = open_batch(1)
    [(job_id,)] = execute("SELECT id FROM pgjobs_job WHERE batch_id = %s", flow.pk)
    with connection.cursor() as cursor:
        assert ACTIONS["discard"].apply(cursor, [job_id], {}).changed == [job_id]
    assert counted(own, flow) == (0, 1, True)


def test_one_whose_worker_was_lost_for_the_last_time(own: OwnConnection) -> None:
    flow = open_batch()
    add_running(flow, worker_id=lost_worker(), max_losses=1)
    assert len(rescue(own)) == 1
    assert counted(own, flow) == (1, 0, True)


def test_one_that_was_cancelled_while_nobody_held_it(own: OwnConnection, worker: int) -> None:
    flow = open_batch()
    add_running(flow, worker_id=worker, cancel_requested_at="2020-01-01T00:00:00Z")
    release_unheld(own, worker, [])
    assert counted(own, flow) == (0, 1, True)
