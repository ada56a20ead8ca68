"""What is wrong is said clearly, and the transaction goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from django_pgjobs import UnknownBatch, aworkflow, chain, current_batch, group, workflow
from django_pgjobs.compat import InvalidTask
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
        (
            lambda flow: workflow("x", on_conflict="return").__enter__(),
            ValueError,
            "expected a dedupe_key with on_conflict='return'",
        ),
        (lambda flow: group(tasks.add.s(1, 2)), TypeError, r"as in group\(\[add\.s"),
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


@pytest.mark.django_db(transaction=True)
def test_a_coroutine_function_does_not_fill_a_workflow() -> None:
    async def fill(flow: Batch) -> None:
        await flow.aadd(tasks.add.s(1, 1))

    with pytest.raises(TypeError, match="expected fill to be a plain function"):
        asyncio.run(aworkflow("unfilled", fill))
    assert not Batch.objects.exists()


def test_a_job_does_not_wait_for_its_own_batch() -> None:
    with workflow("itself") as flow:
        flow.add(tasks.wait_for_own_batch.s())
    run_jobs()
    assert "which waits for that job" in Job.objects.get().errors[-1]["message"]


def test_two_parts_of_a_job_without_a_name_are_two() -> None:
    flow = group([tasks.open_two_parts.s()])
    run_jobs()
    assert Batch.objects.filter(parent=flow).count() == 2
