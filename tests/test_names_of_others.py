"""What other libraries call our options and methods, and what is misspelt: say what to write."""

from __future__ import annotations

import copy
from datetime import UTC, datetime

import pytest

from django_pgjobs import JobResult, task
from django_pgjobs.models import Batch
from django_pgjobs.results import new_result
from tests import tasks


def a_result() -> JobResult:
    """Return that of a job that waits."""
    return new_result(tasks.add, job_id=1, enqueued_at=datetime.now(UTC), args=[], kwargs={})


@pytest.mark.parametrize(
    ("option", "ours"),
    [
        ("bind", "takes_context"),
        ("autoretry_for", "retry_on"),
        ("default_retry_delay", "backoff"),
        ("retry_backoff", "backoff"),
        ("soft_time_limit", "timeout"),
        ("link_error", "on_failure"),
    ],
)
def test_the_decorator_knows_what_celery_calls_an_option(option: str, ours: str) -> None:
    with pytest.raises(TypeError, match=rf"^@task does not take {option}; use {ours}\.$"):
        task(**{option: 3})


def test_a_misspelt_option_is_told_from_the_like() -> None:
    with pytest.raises(TypeError, match=r"\. Did you mean timeout\? Expected"):
        tasks.add.using(timout=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"\. Did you mean queue_name\? Expected"):
        task(queuename="x")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("delay", ".enqueue(...)"),
        ("apply_async", ".using(...).enqueue(...)"),
        ("si", ".s(...), given to then()"),
        ("run", ".call(...)"),
        ("retry", "raise Retry(...)"),
    ],
)
def test_a_task_says_what_it_calls_a_method_of_others(name: str, ours: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(tasks.add, name)
    assert str(caught.value) == f"'Task' object has no attribute '{name}'. Write {ours}."
    assert not hasattr(tasks.add, name)


@pytest.mark.parametrize(
    ("name", "ours"),
    [("get", ".wait(timeout).return_value"), ("revoke", "cancel(result)"), ("state", ".status")],
)
def test_a_result_says_what_it_calls_a_method_of_others(name: str, ours: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(a_result(), name)
    assert str(caught.value) == f"'JobResult' object has no attribute '{name}'. Write {ours}."


def test_an_attribute_that_nobody_has_is_missing_as_ever() -> None:
    with pytest.raises(AttributeError) as caught:
        tasks.add.enqueu()  # type: ignore[attr-defined]
    assert str(caught.value) == "'Task' object has no attribute 'enqueu'"
    # Python's own "Did you mean" reads these.
    assert (caught.value.name, caught.value.obj) == ("enqueu", tasks.add)


def test_a_relation_without_a_row_is_missing_as_ever() -> None:
    with pytest.raises(Batch.DoesNotExist):
        _ = Batch().root


def test_tasks_and_results_are_copied_as_ever() -> None:
    result = a_result()
    assert copy.copy(tasks.add) == tasks.add
    assert copy.deepcopy(result).id == "1"
