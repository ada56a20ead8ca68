"""What follows a batch gets no arguments that are too large: the job before it fails instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from django_pgjobs.conf import SERVER_PAYLOAD_BYTES
from django_pgjobs.exceptions import PayloadError
from django_pgjobs.flows import workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.worker.support import ThreadedWorker

HALF = "x" * (SERVER_PAYLOAD_BYTES // 2)
TOO_LARGE = "takes more than 1 MiB: the result, or an element of it, with the arguments of the call"


def open_flow(follow: Callable[[Batch, Any], Batch], *elements: object) -> Batch:
    """Return a workflow of one job that returns a list, and of what follows it with a large call.

    So many elements are made jobs of when the page that they become is read.
    """
    with override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": SERVER_PAYLOAD_BYTES}):
        with workflow("large") as flow:
            follow(flow, tasks.seen.s(HALF)).then(tasks.add.s(1, 2), after_failure="run")
            flow.add(tasks.seen.s(*elements))
    return flow


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("follow", [Batch.each, Batch.each_item])
@pytest.mark.parametrize("others", [0, 100], ids=["at-once", "in-pages"])
def test_a_result_that_is_too_large_for_the_call_is_a_failure(
    drain: Callable[..., ThreadedWorker],
    follow: Callable[[Batch, Any], Batch],
    others: int,
) -> None:
    flow = open_flow(follow, HALF, *range(others))
    drain(max_payload_bytes=SERVER_PAYLOAD_BYTES)
    first, last = Job.objects.order_by("id")
    assert (first.status, last.status) == ("failed", "successful")
    assert last.task_path == "tests.tasks.add"
    flow.refresh_from_db()
    assert flow.tree_completed_at is not None
    assert TOO_LARGE in first.errors[-1]["message"]
    assert not Batch.objects.exclude(broken="").exists()


@pytest.mark.django_db
@override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": SERVER_PAYLOAD_BYTES})
def test_a_test_is_told_that_a_result_is_too_large() -> None:
    open_flow(Batch.each_item, HALF)
    with pytest.raises(PayloadError, match="Store what is large elsewhere"):
        run_jobs()


@pytest.mark.slow
@pytest.mark.django_db
@override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": SERVER_PAYLOAD_BYTES})
def test_a_large_list_of_elements_that_are_not_is_one_job_for_each() -> None:
    elements = [HALF[10_000 * number : 10_000 * (number + 1)] for number in range(60)]
    open_flow(Batch.each_item, *elements)
    assert run_jobs() == 62
