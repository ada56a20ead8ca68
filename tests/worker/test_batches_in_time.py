"""Batches whose last job nobody could count at once: counted soon, and before a drain ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import transaction

from django_pgjobs import pause, workflow
from django_pgjobs.worker.claiming import settling
from django_pgjobs.worker.upkeep.batches import Batches
from tests import tasks
from tests.factories import get_job
from tests.helpers import wait_until
from tests.worker.support import NEVER, ThreadedWorker
from tests.worker.test_batches import changes

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
def test_a_drain_ends_when_what_its_last_pass_has_ended_is_counted(
    drain: Callable[..., ThreadedWorker],
) -> None:
    pause(queue="paused")
    with workflow("expiring") as flow:
        flow.on_complete(tasks.record_atomic.s("over"))
        soon = timedelta(milliseconds=1)
        flow.add(tasks.add.using(queue_name="paused", expires=soon).s(1, 1))
    drain(poll_interval=NEVER)
    flow.refresh_from_db()
    assert (flow.tree_completed_at is not None, flow.cancelled, changes()) == (True, 1, 0)


def test_an_atomic_job_whose_batch_another_one_holds_lets_the_worker_count_it(
    start_thread: Callable[..., ThreadedWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the look for what nobody has counted, which comes once a second."""
    monkeypatch.setattr(Batches, "due_at", lambda *_: math.inf)
    monkeypatch.setattr(settling, "MAX_MISSES", 12)
    with workflow("atomic") as flow:
        [job_id] = flow.add(tasks.record_atomic.s("done"))
    with transaction.atomic():
        type(flow).objects.select_for_update().get(pk=flow.pk)
        start_thread(poll_interval=NEVER)
        wait_until(lambda: get_job(job_id).status == "successful")
        flow.refresh_from_db()
        assert flow.tree_completed_at is None
    wait_until(lambda: type(flow).objects.get(pk=flow.pk).tree_completed_at)
