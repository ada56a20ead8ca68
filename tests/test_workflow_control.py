"""Workflows that are cancelled, retried, opened once, refused, or explained."""

from __future__ import annotations

from typing import Any

import pytest

from django_pgjobs import (
    BatchSealed,
    DuplicateWorkflow,
    UnknownBatch,
    chain,
    requeue,
    workflow,
)
from django_pgjobs.compat import InvalidTask
from django_pgjobs.exceptions import JobError
from django_pgjobs.models import Batch, Job, RateLimit
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.test_workflows import counts_of, results_of

pytestmark = pytest.mark.django_db


# Cancelling


def test_a_cancelled_tree_begins_nothing_more() -> None:
    with workflow("stopped") as flow:
        each = flow.each(tasks.add.s(1))
        last = each.gather(tasks.echo.s())
        part = flow.batch("part")
        part.add(tasks.add.s(5, 5))
        flow.on_failure(tasks.echo.s("failure"))
        flow.on_success(tasks.echo.s("success"))
        flow.add_many(tasks.add, [(number, 0) for number in range(10)])
    assert flow.cancel()
    assert not flow.cancel()
    run_jobs()
    assert results_of("echo") == [[[flow.pk, "failure"], {}]]
    assert counts_of(flow) == (10, 0, 0, 10)
    assert (counts_of(each), counts_of(last), counts_of(part)) == (
        (0, 0, 0, 0),
        (0, 0, 0, 0),
        (1, 0, 0, 1),
    )
    for batch in (flow, each, last, part):
        assert batch.cancel_requested_at and batch.tree_completed_at
    with pytest.raises(BatchSealed):
        part.add(tasks.add.s(1, 1))
    assert not flow.cancel()


@pytest.mark.slow
def test_a_requeued_job_of_a_part_lets_the_workflow_call_back_again() -> None:
    """Though it is finished before anybody has counted that it runs again."""
    with workflow("payroll") as pay:
        part = pay.batch("part")
        part.add(tasks.fail_once.s())
        part.seal()
        pay.on_complete(tasks.echo.s())
    run_jobs()
    requeue(Job.objects.get(status="failed"))
    run_jobs()
    pay.refresh_from_db()
    assert pay.completions == 2
    assert results_of("echo") == [[[pay.pk], {}]] * 2


def test_a_cancel_seals_what_is_open() -> None:
    with workflow("open", seal=False) as flow:
        flow.add(tasks.add.s(1, 1))
    assert flow.cancel()
    flow.refresh_from_db()
    assert flow.sealed_at and flow.tree_completed_at and flow.cancelled == 1


@pytest.mark.slow
def test_what_was_cancelled_can_be_retried() -> None:
    with workflow("second thoughts") as flow:
        each = flow.each(tasks.add.s(1))
        flow.on_success(tasks.echo.s())
        flow.add(tasks.add.s(1, 1))
    flow.cancel()
    run_jobs()
    assert flow.retry() == 0
    assert flow.retry(cancelled=True) == 1
    run_jobs()
    assert counts_of(flow) == counts_of(each) == (1, 1, 0, 0)
    assert results_of("echo") == [[[flow.pk], {}]]


@pytest.mark.parametrize(
    ("policy", "cancelled"), [("continue", 0), ("cancel branch", 1), ("cancel workflow", 3)]
)
def test_a_failed_job_may_cancel_the_rest(policy: Any, cancelled: int) -> None:
    late = {"queue_name": "late", "priority": -100}
    with workflow("strict", on_failed_job=policy) as flow:
        part = flow.batch("part")
        part.add(tasks.fail_once.s(), tasks.add.using(**late).s(1, 1))
        part.seal()
        flow.add_many(tasks.add.using(**late), [(1, 1), (2, 2)])
    run_jobs()
    assert flow.counts(tree=True) == (4, 3 - cancelled, 1, cancelled)
    assert not Batch.objects.filter(root=flow, tree_completed_at=None).exists()


def test_a_policy_is_that_of_the_owner_unless_said_otherwise() -> None:
    with workflow("policies", on_failed_job="cancel workflow") as flow:
        batches = [
            flow.each(tasks.add.s(1)),
            flow.each_item(tasks.add.s(1), on_failed_job="continue"),
            flow.batch("part", on_failed_job="cancel branch"),
            flow.join(flow).each(tasks.add.s(1), on_failed_job="continue"),
        ]
        batches[2].seal()
        with pytest.raises(ValueError, match="expected on_failed_job to be one of 'continue'"):
            flow.each(tasks.add.s(1), on_failed_job="stop")
    assert [batch.on_failed_job for batch in batches] == [
        "cancel workflow",
        "continue",
        "cancel branch",
        "continue",
    ]


# Once only


def test_a_second_workflow_with_the_key_is_refused() -> None:
    """S2.12, S2.22."""
    with workflow("payroll", dedupe_key="2026-10") as first:
        first.add(tasks.add.s(1, 1))
    with pytest.raises(DuplicateWorkflow, match=f"exists: batch {first.pk}") as caught:
        with workflow("payroll", dedupe_key="2026-10") as second:
            second.add(tasks.add.s(1, 1))
    assert caught.value.batch_id == first.pk
    with workflow("payroll", dedupe_key="2026-11"), workflow("other", dedupe_key="2026-10"):
        pass
    assert run_jobs() == 1


@pytest.mark.slow
def test_a_second_workflow_with_the_key_may_be_the_first() -> None:
    """S2.22: what the block opens is what was opened then, and nothing is added."""

    def open_it() -> list[Batch]:
        with workflow("payroll", dedupe_key="key", on_conflict="return") as flow:
            cheques = flow.each(tasks.add.s(1))
            others = flow.each(tasks.add.s(2))
            part = flow.batch("part")
            part.seal()
            both = flow.join(cheques, others).gather(tasks.echo.s())
            flow.on_complete(tasks.echo.s("complete"))
            flow.add(tasks.add.s(1, 1))
            flow.add_many(tasks.add, [(2, 2)])
        return [flow, cheques, others, part, both]

    first = open_it()
    assert open_it() == first
    run_jobs()
    assert open_it() == first
    assert run_jobs() == 0
    assert counts_of(first[0]) == (2, 2, 0, 0)
    assert len(results_of("echo")) == 2


def test_other_code_cannot_open_the_first_workflow() -> None:
    with workflow("payroll", dedupe_key="key"):
        pass
    with pytest.raises(JobError, match="it was opened by other code"):
        with workflow("payroll", dedupe_key="key", on_conflict="return") as flow:
            flow.each(tasks.add.s(1))


@pytest.mark.parametrize("key", ["", "x" * 513, "a\0", 5])
def test_a_key_is_a_text(key: Any) -> None:
    with pytest.raises(ValueError, match="expected dedupe_key to be text"):
        with workflow("payroll", dedupe_key=key):
            pass


# What is refused


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda flow: flow.add(5), TypeError, "expected a call such as push.s"),
        (lambda flow: flow.add(tasks.add.s(1)), TypeError, "missing a required argument"),
        (lambda flow: flow.each(tasks.add.s(1, 2)), TypeError, "too many positional"),
        (lambda flow: flow.then(tasks.add.s(1)), TypeError, "missing a required argument"),
        (lambda flow: flow.on_complete(tasks.sleep_for.s(1)), TypeError, "too many positional"),
        (lambda flow: flow.then(tasks.add.s(1, object())), TypeError, "JSON"),
        (lambda flow: flow.each(tasks.add.using(unique_key="k").s(1)), InvalidTask, "unique_key"),
        (lambda flow: flow.each(tasks.add.using(rate_limit="x").s(1)), InvalidTask, "rate_limit"),
        (lambda flow: flow.each(tasks.add.using(after=[1]).s(1)), InvalidTask, "after="),
        (lambda flow: flow.add_many(tasks.add, [(1, 1), (1,)]), TypeError, "item 1 of add_many"),
        (
            lambda flow: flow.then(tasks.add.s(1, 1), after_failure=""),
            ValueError,
            "after_failure",
        ),
        (lambda flow: flow.join(), ValueError, "at least one batch"),
    ],
)
def test_what_cannot_be_is_refused_at_once(act: Any, error: type[Exception], words: str) -> None:
    with workflow("refusing") as flow:
        with pytest.raises(error, match=words):
            act(flow)
        flow.add(tasks.add.s(1, 1))
    assert run_jobs() == 1


def test_what_follows_is_said_in_the_block() -> None:
    with workflow("later", seal=False) as flow:
        pass
    with pytest.raises(RuntimeError, match="in the block that opens the batch"):
        flow.each(tasks.add.s(1))
    flow.then(tasks.echo.s("at the end"))
    flow.seal()
    assert run_jobs() == 1


def test_batches_of_two_workflows_are_not_joined() -> None:
    with workflow("one", seal=False) as one, workflow("two", seal=False) as two:
        with pytest.raises(ValueError, match="which is elsewhere"):
            one.join(one, two).then(tasks.echo.s())


def test_a_join_names_each_batch_once() -> None:
    with workflow("twice", seal=False) as flow:
        made = flow.each(tasks.echo.s())
        with pytest.raises(ValueError, match="each batch once"):
            flow.join(made, made).gather(tasks.add.s())


def test_a_chain_has_at_least_one_call() -> None:
    with pytest.raises(ValueError, match="at least one call"):
        chain()


def test_no_batch_of_it_is_there_if_the_block_raises() -> None:
    def open_and_raise() -> None:
        with workflow("raises") as flow:
            flow.add(tasks.add.s(1, 1))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        open_and_raise()
    assert not Batch.objects.exists()
    assert run_jobs() == 0


def test_jobs_of_a_batch_wait_for_others() -> None:
    """`after=` holds in addition."""
    first = tasks.add.enqueue(1, 1)
    with workflow("after") as flow:
        [waiting] = flow.add(tasks.add.using(after=[first]).s(2, 2))
    assert Job.objects.get(pk=waiting).hold == "dependencies"
    assert run_jobs() == 2
    assert counts_of(flow) == (1, 1, 0, 0)


def test_jobs_of_a_batch_start_as_any_others() -> None:
    """Priorities, keys and rate limits, of those that are added and of those that are made."""
    RateLimit.objects.create(name="post", count=1, period=60)
    with workflow("options") as flow:
        soon = flow.each(tasks.add.using(priority=9).s(1))
        flow.add(tasks.add.using(priority=5).s(1, 1))
        flow.add(tasks.add.using(concurrency_key="shop").s(2, 2))
        flow.add(tasks.add.using(rate_limit="post").s(3, 3))
    added = Job.objects.filter(batch_id=flow.pk).order_by("pk")
    assert list(added.values_list("priority", "concurrency_key", "rate_limit_keys")) == [
        (5, None, None),
        (0, "shop", None),
        (0, None, "post"),
    ]
    assert run_jobs() == 6
    assert counts_of(flow) == counts_of(soon) == (3, 3, 0, 0)
    assert set(Job.objects.filter(batch_id=soon.pk).values_list("priority", flat=True)) == {9}


def test_jobs_that_are_made_get_what_their_task_declares() -> None:
    with workflow("keyed") as flow:
        made = flow.each(tasks.keyed.s())
        flow.add(tasks.add.s(1, 1))
    run_jobs()
    job = Job.objects.get(batch_id=made.pk)
    assert (job.concurrency_key, job.status) == ("keyed:2", "successful")


# Explaining


@pytest.mark.slow
def test_a_batch_says_what_it_waits_for() -> None:
    with workflow("explained", seal=False) as flow:
        each = flow.each(tasks.add.s(1))
        part = flow.batch("part")
        flow.add(tasks.add.s(1, 1), tasks.add.s(2, 2))

    def codes(batch: Batch) -> list[str]:
        return [reason.code for reason in batch.explain().reasons]

    # That the jobs which were added are noted and not counted explains nothing.
    assert codes(flow) == ["open", "waiting", "parts"]
    assert codes(each) == ["follows"]
    assert each.explain().reasons[0].refs == (flow.pk,)
    assert str(each.explain()) == f"It follows batches that are not complete: {flow.pk}"
    assert "2 jobs of it wait." in str(flow.explain())
    flow.seal()
    assert codes(flow) == ["waiting", "parts"]
    run_jobs()
    assert codes(flow) == ["parts"]
    part.seal()
    assert codes(flow) == ["complete"] == codes(each)
    assert flow.explain().is_complete
    with pytest.raises(UnknownBatch):
        Batch(pk=999999999).explain()


def test_a_batch_says_what_is_wrong_with_it() -> None:
    with workflow("wrong") as flow:
        flow.add(tasks.add.s(1, 1))
    Job.objects.filter(batch_id=flow.pk).delete()
    Batch.objects.filter(pk=flow.pk).update(broken="odd")
    assert [reason.code for reason in flow.explain().reasons] == ["broken", "missing"]


def test_a_batch_that_is_complete_says_so_to_who_wants_to_be_called_at_its_end() -> None:
    with workflow("over") as flow:
        flow.add(tasks.add.s(1, 1))
    flow.on_complete(tasks.echo.s())
    run_jobs()
    with pytest.raises(BatchSealed, match=rf"^batch {flow.pk} is complete, with everything below"):
        flow.on_complete(tasks.echo.s())
    flow.delete()
    with pytest.raises(UnknownBatch):
        flow.on_complete(tasks.echo.s())
