"""Jobs of a batch that are there once: by a dedupe key of the batch, or by their unique key."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.db.models import F

from django_pgjobs import BatchSealed, DuplicateJob, UnknownBatch, workflow
from django_pgjobs.compat import InvalidTask, task_enqueued
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.models import Effect
from tests.test_workflows import counts_of, results_of

pytestmark = pytest.mark.django_db

unique = tasks.add.using(unique_key="{a}")


def open_flow() -> Batch:
    with workflow("keys", seal=False) as flow:
        pass
    return flow


def test_a_second_job_with_the_key_is_refused() -> None:
    """S2.15, S2.22: as long as the batch is there, also after the first has ended."""
    flow = open_flow()
    [first] = flow.add(tasks.add.s(7, 1), dedupe_key="order:{a}")
    run_jobs()
    with pytest.raises(DuplicateJob, match="the dedupe key 'order:7'") as caught:
        flow.add(tasks.add.s(8, 1), tasks.echo.s(a=7), dedupe_key="order:{a}")
    assert caught.value.job_id == int(first)
    # Nothing of that call was added, and the transaction goes on.
    flow.add(tasks.add.s(8, 1), dedupe_key="order:{a}")
    open_flow().add(tasks.add.s(7, 1), dedupe_key="order:{a}")
    flow.seal()
    run_jobs()
    assert counts_of(flow) == (2, 2, 0, 0)


def test_a_second_job_with_the_key_may_be_the_first() -> None:
    """S2.22."""
    flow = open_flow()
    items = [(1, 1), (2, 1), (1, 5)]
    ids = flow.add_many(tasks.add, items, dedupe_key="{a}", on_conflict="return")
    assert ids[0] == ids[2] != ids[1]
    again = flow.add_many(tasks.add, [*items, (3, 1)], dedupe_key="{a}", on_conflict="return")
    assert again[:3] == ids and again[3] not in ids
    flow.seal()
    assert flow.add(tasks.add.s(3, 9), dedupe_key="{a}", on_conflict="return") == again[3:]
    with pytest.raises(BatchSealed):
        flow.add(tasks.add.s(4, 9), dedupe_key="{a}", on_conflict="return")
    assert run_jobs() == 3
    assert results_of("add") == [2, 3, 4]
    assert counts_of(flow) == (3, 3, 0, 0)


def test_two_jobs_of_a_call_with_one_key_are_refused() -> None:
    flow = open_flow()
    with pytest.raises(DuplicateJob, match="several of the jobs to be added") as caught:
        flow.add(tasks.add.s(1, 1), tasks.add.s(1, 2), dedupe_key="{a}")
    assert caught.value.job_id is None
    assert not Job.objects.exists()


def test_a_running_job_adds_what_its_batch_has_not_had() -> None:
    """A crawler that visits each page once."""
    with workflow("crawl") as flow:
        flow.add(tasks.visit.s(5), dedupe_key="{page}")
    run_jobs()
    # Of each page those of its half and of its half less one.
    assert sorted(results_of("visit")) == [0, 1, 2, 5]
    assert counts_of(flow) == (4, 4, 0, 0)


@pytest.mark.parametrize(
    ("key", "error", "words"),
    [
        ("", ValueError, "one line of text"),
        ("x" * 513, ValueError, "at most 512 bytes"),
        ("{nobody}", TypeError, "'nobody'"),
        (5, TypeError, "expected dedupe_key to be a template"),
        (lambda a, b: None, ValueError, "to return text, got None"),
        (lambda a, b: 5, TypeError, "to return text or None, got 5"),
    ],
)
def test_a_key_that_cannot_be_is_refused(key: Any, error: type[Exception], words: str) -> None:
    flow = open_flow()
    with pytest.raises(error, match=words):
        flow.add(tasks.add.s(1, 1), dedupe_key=key)


def test_what_else_is_refused() -> None:
    flow = open_flow()
    with pytest.raises(ValueError, match="on_conflict"):
        flow.add(tasks.add.s(1, 1), dedupe_key="a", on_conflict="merge")  # type: ignore[arg-type]
    with pytest.raises(UnknownBatch):
        Batch(pk=999999999).add(tasks.add.s(1, 1), dedupe_key="a")
    with pytest.raises(InvalidTask, match="a dedupe_key or"):
        flow.add(unique.s(1, 1), dedupe_key="a")
    with pytest.raises(InvalidTask, match="on_conflict='raise' or 'return'"):
        flow.add(unique.using(on_conflict="replace").s(1, 1))
    with pytest.raises(InvalidTask, match="unique_key"):
        flow.then(unique.s(1, 1))


def test_keys_go_with_their_batch() -> None:
    flow = open_flow()
    flow.add(tasks.add.s(1, 1), dedupe_key="a")
    flow.cancel()
    run_jobs()
    flow.delete()
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgjobs_batch_key")
        assert cursor.fetchone() == (0,)


def test_a_job_that_is_met_by_its_unique_key_is_not_the_batchs() -> None:
    met = unique.enqueue(1, 1)
    flow = open_flow()
    ids = flow.add(unique.s(1, 1), unique.s(2, 1))
    assert ids[0] == met.id
    assert flow.add_many(unique, [(2, 5), (3, 5)])[0] == ids[1]
    flow.seal()
    run_jobs()
    assert counts_of(flow) == (2, 2, 0, 0)


def test_a_twin_is_refused_where_the_task_says_so() -> None:
    strict = unique.using(on_conflict="raise")
    flow = open_flow()
    flow.add(strict.s(1, 1))
    with pytest.raises(DuplicateJob):
        flow.add(strict.s(1, 1))
    with pytest.raises(DuplicateJob, match=r"^2 of the jobs to be enqueued have the unique key"):
        flow.add_many(strict, [(2, 1), (2, 1)])
    flow.seal()
    run_jobs()
    assert counts_of(flow) == (1, 1, 0, 0)


def test_a_unique_job_per_row() -> None:
    Effect.objects.bulk_create(Effect(key=f"key {number}") for number in range(3))
    flow = open_flow()
    assert flow.add_from(unique, Effect.objects.all(), a=F("pk"), b=1) == 3
    assert flow.add_from(unique, Effect.objects.all(), a=F("pk"), b=1) == 0
    flow.seal()
    run_jobs()
    assert counts_of(flow) == (3, 3, 0, 0)


@pytest.mark.parametrize(
    ("task", "options"),
    [(unique, {}), (tasks.add, {"dedupe_key": "{a}", "on_conflict": "return"})],
)
def test_receivers_are_told_of_new_jobs_only(task: Any, options: dict[str, Any]) -> None:
    told: list[str] = []

    def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
        told.append(task_result.id)

    flow = open_flow()
    task_enqueued.connect(receive)
    try:
        ids = flow.add(task.s(1, 1), **options)
        assert flow.add(task.s(1, 2), **options) == ids
        [_, new] = flow.add(task.s(1, 3), task.s(2, 3), **options)
    finally:
        task_enqueued.disconnect(receive)
    assert told == [*ids, new]
