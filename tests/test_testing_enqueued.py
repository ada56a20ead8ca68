"""assert_enqueued() and assert_not_enqueued(): which jobs wait, for the tests of a project."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_pgjobs import task
from django_pgjobs.testing import assert_enqueued, assert_not_enqueued
from django_pgjobs.testing import enqueued as enqueued_module
from tests import tasks
from tests.factories import make_job

pytestmark = pytest.mark.django_db


@task
def send(user_id: int, *tags: str, by: str = "mail", **more: Any) -> None:
    """Be enqueued."""


def test_the_newest_waiting_job_is_returned() -> None:
    for _ in range(2):
        result = tasks.add.using(queue_name="slow").enqueue(1, 2)
    job = assert_enqueued(tasks.add, 1, 2)
    assert (str(job.pk), job.queue_name) == (result.id, "slow")
    assert assert_enqueued(tasks.add) == job


def test_arguments_are_the_same_by_place_or_name_and_by_default() -> None:
    send.enqueue(1, "a", "b", copy=(1, 2))
    assert_enqueued(send, 1, "a", "b", by="mail", copy=[1, 2])
    assert_not_enqueued(send, 1, "a", copy=[1, 2])
    assert_not_enqueued(send, 1, "a", "b", by="post", copy=[1, 2])
    send.enqueue(user_id=7)
    assert_enqueued(send, 7)


def test_what_has_run_or_is_of_another_task_does_not_wait() -> None:
    make_job("tests.tasks.add", args=[1, 2], status="successful")
    tasks.echo.enqueue(1)
    assert_not_enqueued(tasks.add)
    assert_enqueued(tasks.echo)


def test_a_failure_names_what_does_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="no job waits at all"):
        assert_enqueued(tasks.add)
    monkeypatch.setattr(enqueued_module, "MAX_NAMED", 1)
    tasks.add.enqueue(1, b=2)
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(tasks.add, 1, 3)
    assert str(caught.value) == (
        "expected a waiting job tests.tasks.add(1, 3), these wait:\n  tests.tasks.add(1, b=2)"
    )
    job = tasks.echo.enqueue("x")
    with pytest.raises(AssertionError, match=r"add\(1, b=2\)\n  \.\.\.$"):  # of the task first
        assert_enqueued(tasks.add, 1, 3)
    with pytest.raises(AssertionError, match=rf"got job {job.id}: tests\.tasks\.echo\('x'\)\."):
        assert_not_enqueued(tasks.echo)


def test_arguments_that_the_task_does_not_take_are_a_mistake_of_the_test() -> None:
    with pytest.raises(TypeError, match="missing a required argument"):
        assert_enqueued(tasks.add, 1)


def test_a_row_whose_arguments_do_not_fit_is_passed_over() -> None:
    make_job("tests.tasks.add", args=[1])
    job = tasks.add.enqueue(1, 2)
    make_job("tests.tasks.add", args=[1, 2, 3])
    assert str(assert_enqueued(tasks.add, 1, 2).pk) == job.id


SOON = timedelta(hours=2)


@pytest.mark.parametrize(
    ("given", "other"),
    [
        ({"queue_name": "slow"}, {"queue_name": "default"}),
        ({"priority": 5}, {"priority": 6}),
        ({"run_after": SOON}, {"run_after": SOON + timedelta(seconds=1)}),
        ({"run_after": SOON}, {"run_after": datetime(2999, 1, 1, tzinfo=UTC)}),
        ({"run_after": datetime(2999, 1, 1, tzinfo=UTC)}, {"run_after": SOON}),
        ({}, {"run_after": SOON}),
    ],
)
def test_what_using_changed_is_compared(given: dict[str, Any], other: dict[str, Any]) -> None:
    tasks.add.using(**given).enqueue(1, 2)
    assert_enqueued(tasks.add, 1, 2)
    assert_enqueued(tasks.add.using(**given), 1, 2)
    assert_not_enqueued(tasks.add.using(**other), 1, 2)
    assert_not_enqueued(tasks.add.using(**given), 1, 3)


def test_a_copy_waits_where_it_says_also_without_a_time() -> None:
    tasks.add.using(queue_name="slow", run_after=SOON).enqueue(1, 2)
    assert_enqueued(tasks.add.using(queue_name="slow"))
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(tasks.add.using(queue_name="fast", run_after=timedelta(days=1)), 1, 2)
    end = "priority=0, backend='default', run_after"
    expected, found = str(caught.value).splitlines()
    assert expected.endswith(f"add(1, 2) with queue_name='fast', {end}=1 d, these wait:")
    assert found.endswith(f"add(1, 2) with queue_name='slow', {end}=2 h")


@pytest.mark.parametrize("check", [assert_enqueued, assert_not_enqueued])
def test_what_cannot_be_compared_is_refused(check: Any) -> None:
    with pytest.raises(TypeError, match=r"compares queue_name, .*, not correlation_id, tags\."):
        check(tasks.add.using(tags=["a"], correlation_id="7", queue_name="x"))
    with pytest.raises(TypeError, match=rf"{check.__name__}\(\) expected a task, .* got 'tests"):
        check("tests.tasks.add")
    with pytest.raises(TypeError, match=r"expected a task, .* got <function add"):
        check(tasks.add.func)
