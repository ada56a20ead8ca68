"""What follows several batches: where they may be, and in which order their results come."""

from __future__ import annotations

import pytest

from django_pgjobs import BatchSealed, workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests import tasks

pytestmark = pytest.mark.django_db


def gathered() -> list[object]:
    """Return the positional arguments that the job of `echo` was called with."""
    job = Job.objects.get(task_path="tests.tasks.echo")
    return list(job.result[0])


def test_lists_come_in_the_order_in_which_batches_are_joined() -> None:
    with workflow("ordered") as flow:
        flow.add(tasks.add.s(1, 2))
        left, right = flow.each(tasks.add.s(10)), flow.each(tasks.add.s(100))
        flow.join(right, left).gather(tasks.echo.s())
    run_jobs()
    assert gathered() == [[103], [13]]


def test_parts_are_joined_before_they_are_sealed() -> None:
    with workflow("parts") as flow:
        one, two = flow.batch("one"), flow.batch("two")
        flow.join(two, one).gather(tasks.echo.s())
        one.add(tasks.add.s(1, 2))
        two.add(tasks.add.s(30, 40))
        one.seal()
        two.seal()
    run_jobs()
    assert gathered() == [[70], [3]]
    flow.refresh_from_db()
    assert flow.tree_completed_at


def test_a_failure_in_one_part_stops_what_follows_both() -> None:
    with workflow("failed part") as flow:
        one, two = flow.batch("one"), flow.batch("two")
        after = flow.join(one, two).then(tasks.echo.s())
        one.add(tasks.fail_once.s())
        two.add(tasks.add.s(1, 1))
        one.seal()
        two.seal()
    run_jobs()
    assert after.counts().jobs == 0
    flow.refresh_from_db()
    assert flow.tree_completed_at and flow.tree_failed


def test_a_gather_has_the_results_of_own_jobs_only() -> None:
    with workflow("own") as flow:
        part = flow.batch("part")
        part.add(tasks.add.s(1, 2))
        part.seal()
        flow.add(tasks.add.s(5, 5))
        flow.gather(tasks.echo.s())
    run_jobs()
    assert gathered() == [[10]]


def test_an_error_names_the_batch_that_is_sealed() -> None:
    with workflow("sealed part") as flow:
        one, two = flow.batch("one"), flow.batch("two")
        two.seal()
        with pytest.raises(BatchSealed, match=f"batch {two.pk} is sealed, so nothing can follow"):
            flow.join(one, two).then(tasks.echo.s())
        one.seal()
    assert run_jobs() == 0


def test_batches_that_are_elsewhere_are_not_joined() -> None:
    with workflow("here") as flow, workflow("there") as other:
        one, two = flow.batch("one"), flow.batch("two")
        inner = two.batch("inner")
        for owner, stranger in [(flow, other), (one, two), (flow, inner), (one, flow)]:
            with pytest.raises(ValueError, match=f"got batch {stranger.pk}, which is elsewhere"):
                owner.join(stranger).then(tasks.echo.s())
    assert Batch.objects.filter(follows__isnull=False).count() == 0


@pytest.mark.slow
def test_elements_of_lists_become_jobs_in_order() -> None:
    """Of several lists in one statement, too."""
    with workflow("lists") as flow:
        flow.each_item(tasks.echo.s())
        flow.add_many(tasks.listed, [(number,) for number in range(7)])
    run_jobs()
    arguments = Job.objects.filter(task_path="tests.tasks.echo").order_by("pk")
    pairs = [tuple(args[0]) for args in arguments.values_list("args", flat=True)]
    assert pairs == [(number, place) for number in range(7) for place in range(12)]
