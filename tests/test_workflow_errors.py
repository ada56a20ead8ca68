"""What is wrong is said clearly, and the transaction goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings

from django_pgjobs import UnknownBatch, agroup, aworkflow, chain, current_batch, group, workflow
from django_pgjobs.compat import InvalidTask
from django_pgjobs.conf import SERVER_PAYLOAD_BYTES
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests import tasks

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("batch_id", [10**9, 2**70, "x", None])
@pytest.mark.parametrize(
    "ask",
    [
        lambda batch: batch.add(tasks.add.s(1, 1)),
        lambda batch: batch.add_many(tasks.add, [(1, 1)]),
        lambda batch: batch.batch("part"),
        lambda batch: batch.then(tasks.echo.s()),
        lambda batch: batch.on_complete(tasks.echo.s()),
        lambda batch: batch.seal(),
        lambda batch: batch.counts(),
        lambda batch: list(batch.results()),
        lambda batch: batch.explain(),
        lambda batch: batch.wait(),
        lambda batch: batch.retry(),
        lambda batch: batch.cancel(),
        lambda batch: batch.delete(),
    ],
)
def test_of_a_batch_that_is_gone_all_say_the_same(
    ask: Callable[[Any], object], batch_id: Any
) -> None:
    with transaction.atomic():
        with pytest.raises(UnknownBatch, match=f"batch {batch_id} does not exist"):
            ask(Batch(pk=batch_id))
        assert not Batch.objects.exists()


@pytest.mark.parametrize(
    ("ask", "error", "text"),
    [
        (
            lambda flow: flow.add(tasks.add),
            TypeError,
            r"such as add\.s\(\.\.\.\), got the task add",
        ),
        (lambda flow: flow.add_from(tasks.add, None), TypeError, "expected a QuerySet, got None"),
        (lambda flow: flow.join(None), TypeError, r"join\(\) expected batches, got None"),
        (lambda flow: flow.counts(tree="x"), TypeError, "tree to be True or False, got 'x'"),
        (lambda flow: flow.retry(cancelled=1), TypeError, "cancelled to be True or False, got 1"),
        (lambda flow: flow.add([tasks.add.s(1)]), TypeError, r"got \[add\.s\(\.\.\.\)\]"),
        (lambda flow: flow.add_many(tasks.add.s(), []), TypeError, "expected a task, got add.s"),
        (lambda flow: flow.add_many([(1, 2)], tasks.add), TypeError, "expected a task, got"),
        (lambda flow: flow.batch(5), TypeError, "name of a batch"),
        (lambda flow: flow.batch("\0"), TypeError, "name of a batch"),
        (lambda flow: flow.batch("x" * 513), ValueError, "up to 512 bytes"),
        (lambda flow: flow.batch("x", metadata=[1]), TypeError, "expected metadata to be a dict"),
        (lambda flow: flow.each(tasks.echo.s(), skip_none="x"), TypeError, "skip_none"),
        (lambda flow: flow.gather(tasks.keyed.s()), InvalidTask, "it gathers"),
        (lambda flow: flow.gather(tasks.add.s(1, 2)), TypeError, "puts 1 argument before those of"),
        (lambda flow: flow.then(tasks.add.s(1)), TypeError, "puts 0 arguments before those of"),
        (lambda flow: flow.on_complete(tasks.add.s(1, 2)), TypeError, "puts 1 argument before"),
        (
            lambda flow: workflow("x", on_conflict="return").__enter__(),
            ValueError,
            "expected a dedupe_key with on_conflict='return'",
        ),
        (lambda flow: workflow("x", seal="no").__enter__(), TypeError, "seal to be True or False"),
        (lambda flow: flow.wait(timeout=-1), ValueError, "timeout to be 0 seconds or more"),
        (lambda flow: group(tasks.add.s(1, 2)), TypeError, r"expected a list of calls.+got add\.s"),
        (lambda flow: group(5), TypeError, r"as in group\(\[push\.s\(17\)\]\), got 5\."),
        (lambda flow: async_to_sync(agroup)(5), TypeError, "expected a list of calls.+got 5"),
        (lambda flow: chain([tasks.add.s(1, 2)]), TypeError, r"got \[add\.s\(\.\.\.\)\]"),
        (lambda flow: current_batch(), LookupError, r"current_batch\(\) was called outside"),
    ],
)
def test_a_wrong_argument_is_named(
    ask: Callable[[Any], object], error: type[Exception], text: str
) -> None:
    with workflow("wrong") as flow:
        with pytest.raises(error, match=text) as caught:
            ask(flow)
        assert len(str(caught.value)) < 200
        flow.add(tasks.add.s(1, 1))
    assert run_jobs() == 1


async def add_one(flow: Batch) -> None:
    await flow.aadd(tasks.add.s(1, 1))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fill", [add_one, lambda flow: flow.aadd(tasks.add.s(1, 1))])
def test_a_coroutine_does_not_fill_a_workflow(fill: Callable[[Batch], object]) -> None:
    with pytest.raises(TypeError, match="expected fill to be a plain function"):
        async_to_sync(aworkflow)("unfilled", fill)
    assert not Batch.objects.exists()


@override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": SERVER_PAYLOAD_BYTES})
@pytest.mark.parametrize("ask", [Batch.on_complete, Batch.gather, Batch.each])
def test_arguments_leave_room_for_what_comes_before_them(
    ask: Callable[[Batch, Any], object],
) -> None:
    """Else the batch could not be counted when it is complete."""
    size = SERVER_PAYLOAD_BYTES - len(json.dumps([""]))
    with workflow("large") as flow:
        with pytest.raises(ValueError, match="expected args to take at most"):
            ask(flow, tasks.echo.s("x" * size))
        ask(flow, tasks.echo.s("x" * (size - 100)))
        flow.add(tasks.echo.s(1))
    assert run_jobs() == 2
    assert not Batch.objects.exclude(broken="").exists()


def test_a_job_does_not_wait_for_its_own_batch() -> None:
    with workflow("itself") as flow:
        flow.add(tasks.wait_for_own_batch.s())
    run_jobs()
    assert "which waits for that job" in Job.objects.get().errors[-1]["message"]


def test_two_parts_of_a_job_without_a_name_are_two() -> None:
    flow = group([tasks.open_two_parts.s()])
    run_jobs()
    assert Batch.objects.filter(parent=flow).count() == 2


@pytest.mark.django_db(transaction=True)
def test_without_autocommit_nobody_waits_for_a_batch() -> None:
    """No worker sees its jobs before the commit."""
    flow = group([tasks.add.s(1, 1)])
    transaction.set_autocommit(False)
    try:
        with pytest.raises(RuntimeError, match="expected no open transaction while waiting for"):
            flow.wait(timeout=0.1)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
