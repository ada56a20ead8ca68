"""Calls that a newcomer gets wrong: each is refused with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_pgjobs import Exponential, Task, task
from django_pgjobs.compat import InvalidTask
from django_pgjobs.declaring.retries import delay_after
from tests.tasks import add

declare: Any = task
ADD = "tests.tasks.add"


def plain(shop_id: int = 1, product_id: int = 2) -> None:
    """Stand for a project's function."""


def with_context(context: Any) -> None:
    """Stand for one that takes it."""


# What is declared

A_FUNCTION = "expected a module-level function, got"
NO_FUNCTIONS: dict[str, tuple[Callable[[], object], str]] = {
    "a queue": (
        lambda: declare("mail"),
        f"@task {A_FUNCTION} 'mail'. Options have names, as in @task(queue_name='mail').",
    ),
    "a queue, in the brackets": (lambda: declare("mail")(plain), f"{A_FUNCTION} 'mail'. Options"),
    "a number": (lambda: declare(5)(plain), f"{A_FUNCTION} 5. Options have names"),
    "nothing": (lambda: declare()(None), f"{A_FUNCTION} None. Options have names"),
    "a task": (
        lambda: declare(add),
        f"{A_FUNCTION} {ADD}, which is a task. Other options for it are {ADD}.using(...).",
    ),
    "a class": (lambda: declare(int), f"@task int {A_FUNCTION} <class 'int'>."),
    "of C": (lambda: declare(len), f"@task len {A_FUNCTION} <built-in function len>."),
}


@pytest.mark.parametrize("case", NO_FUNCTIONS)
def test_a_task_is_made_of_a_function(case: str) -> None:
    call, said = NO_FUNCTIONS[case]
    with pytest.raises(InvalidTask) as caught:
        call()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"atomic": "yes"}, "expected atomic to be True or False, got 'yes'."),
        ({"atomic": None}, "expected atomic to be True or False, got None."),
        (
            {"rate_limit": {"count": 2, "period": 1}},
            "or a function of the arguments, got {'count': 2, 'period': 1}.",
        ),
        ({"expires": 60}, "got 60. Write timedelta(seconds=60)."),
        ({"schedule": {"every": timedelta(1), "jitter": 60}}, "Write timedelta(seconds=60)."),
        ({"schedule": {"every": timedelta(1), "grace": 0.5}}, "Write timedelta(seconds=0.5)."),
        ({"backoff": [timedelta(-1)]}, "expected delays of 0 seconds or more in backoff, got "),
        ({"timeout": timedelta(0)}, "expected timeout to be a number of seconds or a timedelta"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidTask) as caught:
        declare(**options)(plain)
    assert said in str(caught.value)


def test_a_context_is_taken_or_not() -> None:
    with pytest.raises(InvalidTask, match="expected takes_context to be True or False, got 'yes'"):
        declare(takes_context="yes")(with_context)


def test_a_timeout_may_be_a_timedelta() -> None:
    half: Task = task(timeout=timedelta(minutes=1, milliseconds=500))(plain)
    assert half.timeout == 60.5
    assert half.using(timeout=timedelta(hours=1)).timeout == 3600


def delay_of(backoff: Any, attempt: int = 1) -> float | None:
    """Return the delay after an attempt."""
    return delay_after(backoff, attempt=attempt, error=ValueError(), make_result=lambda: None)


def test_delays_may_be_timedeltas() -> None:
    declared = task(backoff=[1, timedelta(minutes=2)])(plain)
    assert [delay_of(declared.backoff, attempt) for attempt in (1, 2, 3)] == [1, 120, 120]
    full = Exponential(base=timedelta(minutes=1), maximum=timedelta(hours=1), jitter=0)
    assert [delay_of(full, attempt) for attempt in (1, 2, 9)] == [60, 120, 3600]
    assert full == Exponential(base=60, maximum=3600, jitter=0)


def test_a_factor_is_no_length_of_time() -> None:
    with pytest.raises(TypeError, match="expected factor of Exponential to be a number, got "):
        Exponential(factor=timedelta(1))  # type: ignore[arg-type]
