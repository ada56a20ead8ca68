"""Batches in async code, and async jobs of batches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync
from django.db.models import F

from django_pgjobs import DuplicateWorkflow, achain, agroup, aworkflow, group, workflow
from django_pgjobs.models import Batch, Job
from tests import tasks
from tests.worker.support import ThreadedWorker
from tests.worker.test_batches import open_batch

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


@pytest.mark.slow
def test_async_jobs_gather_too(drain: Start) -> None:
    group([tasks.add_async.s(1, 1)], gather=tasks.add_async.s([5]))
    drain()
    assert [job.result for job in Job.objects.order_by("pk")] == [2, [2, 5]]


@pytest.mark.slow
def test_jobs_of_async_tasks_say_so_whoever_makes_them(drain: Start) -> None:
    """Else a claim would take them for threads."""
    with workflow("made") as made:
        made.each(tasks.add_async.s(1))
        made.each_item(tasks.add_async.s(1))
        made.gather(tasks.add_async.s([5]))
        made.on_complete(tasks.add_async.s(1))
        made.add(tasks.add.s(1, 1))
    drain()
    of_made = Job.objects.exclude(task_path=tasks.add.module_path)
    assert list(of_made.values_list("is_async", flat=True)) == [True] * 4
    assert not Job.objects.get(task_path=tasks.add.module_path).is_async
    unique = tasks.add_async.using(unique_key="{a}")
    with workflow("added") as added:
        added.add(tasks.add_async.s(1, 1))
        added.add_many(tasks.add_async, [(2, 2)], dedupe_key="{a}")
        added.add_many(unique, [(3, 3)])
        added.add_from(tasks.add_async, Batch.objects.filter(pk=made.pk), a=F("pk"), b=1)
    of_added = Job.objects.filter(batch_id=added.pk)
    assert list(of_added.values_list("is_async", flat=True)) == [True] * 4


def test_async_code_adds_seals_and_waits(start_thread: Start) -> None:
    flow = open_batch()
    start_thread()

    async def act() -> Batch:
        await flow.aadd(tasks.add.s(1, 1))
        await flow.aadd_many(tasks.add, [(2, 2)])
        await flow.aseal()
        return await flow.async_wait(timeout=10)

    assert async_to_sync(act)().successful == 2


def test_async_code_opens_workflows() -> None:
    def fill(flow: Batch) -> None:
        flow.each(tasks.add.s(1))
        flow.add(tasks.add.s(1, 1))

    async def act() -> list[Batch]:
        return [
            await aworkflow("async", fill, dedupe_key="once"),
            await achain(tasks.add.s(1, 1), tasks.add.s(1)),
            await agroup((tasks.add.s(number, 1) for number in range(2)), gather=tasks.echo.s()),
        ]

    flows = async_to_sync(act)()
    assert [flow.counts().jobs for flow in flows] == [1, 1, 2]
    assert all(Batch.objects.filter(parent=flow).count() == 1 for flow in flows)
    assert all(flow.sealed_at for flow in Batch.objects.filter(parent=None))
    with pytest.raises(DuplicateWorkflow):
        async_to_sync(aworkflow)("async", fill, dedupe_key="once")
