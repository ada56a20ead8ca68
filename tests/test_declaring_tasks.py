"""Declaring tasks: options, `.using()`, and what is refused at import instead of at night."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync

from django_pgjobs import Exponential, Task, task
from django_pgjobs.compat import TASKS_PACKAGE, InvalidTask
from django_pgjobs.declaring.retries import DEFAULT_BACKOFF
from tests import tasks


def plain(a: int = 0) -> int:
    """What most tests here declare."""
    return a


async def coroutine(a: int = 0) -> int:
    """The same, async."""
    return a


def with_context(context: Any, a: int = 0) -> int:
    """Take the context."""
    return a


nameless = lambda: None  # noqa: E731


class Holder:
    """Has functions that no worker can look up by module and name."""

    def method(self) -> None: ...

    @staticmethod
    def static() -> None: ...


def test_a_bare_decorator_declares_a_task_with_defaults() -> None:
    """S1.16."""
    declared = task(plain)
    assert isinstance(declared, Task)
    assert (declared.name, declared.module_path) == (
        "plain",
        "tests.test_declaring_tasks.plain",
    )
    assert (declared.priority, declared.queue_name, declared.backend) == (0, "default", "default")
    assert (declared.run_after, declared.takes_context, declared.timeout) == (None, False, None)
    assert (declared.max_attempts, declared.backoff) == (None, DEFAULT_BACKOFF)
    assert (declared.retry_on, declared.discard_on) == ((Exception,), ())
    assert (declared.atomic, declared.correlation_id, declared.tags) == (False, "", ())
    assert declared.metadata == {}


def test_all_options_are_kept() -> None:
    options: dict[str, Any] = {
        "priority": -100,
        "queue_name": "mail",
        "takes_context": True,
        "max_attempts": 7,
        "backoff": [1, 2],
        "timeout": 2.5,
        "retry_on": (KeyError, OSError),
        "discard_on": (ValueError,),
        "atomic": True,
        "correlation_id": "c",
        "tags": ("a", "b"),
        "metadata": {"team": "shop"},
    }
    declared = task(**options)(with_context)
    assert {name: getattr(declared, name) for name in options} == options


def test_one_exception_stands_for_a_tuple_of_it_and_lists_become_tuples() -> None:
    declared = task(retry_on=OSError, discard_on=[KeyError], tags=["a"])(plain)
    assert (declared.retry_on, declared.discard_on) == ((OSError,), (KeyError,))
    assert declared.tags == ("a",)


def test_the_function_stays_callable_through_the_task() -> None:
    assert task(plain).call(3) == 3
    assert task(coroutine).call(a=4) == 4
    assert async_to_sync(task(plain).acall)(5) == 5


@pytest.mark.skipif(django.VERSION < (6, 1), reason="takes no options before Django 6.1")
def test_the_decorator_of_django_takes_our_options() -> None:
    from django.tasks import task as django_task

    declared = django_task(max_attempts=3, backoff=[1], timeout=5)(plain)
    assert declared == task(max_attempts=3, backoff=[1], timeout=5)(plain)


def test_the_decorator_of_django_makes_our_task() -> None:
    django_task = __import__(TASKS_PACKAGE, fromlist=["task"]).task
    assert django_task(plain) == task(plain)
    assert django_task(priority=3, queue_name="q")(plain) == task(priority=3, queue_name="q")(plain)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"max_attempts": 0},
            "max_attempts to be a whole number from 1 to 2147483647, got 0.",
        ),
        (
            {"max_attempts": 1.5},
            "max_attempts to be a whole number from 1 to 2147483647, got 1.5.",
        ),
        ({"max_attempts": True}, "got True."),
        ({"max_attempts": "3"}, "got '3'."),
        ({"max_attempts": 2**31}, "expected max_attempts"),
        ({"timeout": 0}, "expected timeout to be a number of seconds or a timedelta, more than 0,"),
        ({"timeout": -1}, "got -1."),
        ({"timeout": float("nan")}, "got nan."),
        ({"timeout": float("inf")}, "got inf."),
        ({"timeout": "5"}, "got '5'."),
        ({"timeout": 1e308}, "got 1e+308."),
        ({"priority": True}, "expected priority to be a whole number, got True."),
        (
            {"concurrency_limit": 2**31},
            "concurrency_limit to be a whole number from 1 to",
        ),
        (
            {"rate_limit": "10/m"},
            "rate_limit to be the name of a limit, got the rate '10/m'.",
        ),
        (
            {"rate_limit": "a", "rate_cost": 2**31},
            "rate_cost to be a whole number from 1 to",
        ),
        ({"timeout": timedelta(days=366_001)}, "more than 0, up to 1000 years, got 31622486400.0."),
        ({"backoff": "10"}, "expected backoff to be a list of seconds"),
        ({"backoff": []}, "expected backoff to list at least one delay"),
        ({"backoff": Exponential}, "expected backoff to be a list of seconds, Exponential(...)"),
        ({"retry_on": ["ValueError"]}, "expected retry_on to list exception classes, got 'Val"),
        ({"retry_on": 5}, "expected retry_on to list exception classes, got 5."),
        ({"discard_on": [int]}, "expected discard_on to list exception classes, got <class 'int'>"),
        ({"discard_on": int}, "expected discard_on to list exception classes"),
        ({"tags": "abc"}, "expected tags to be a list of strings, got 'abc'."),
        (
            {"tags": [1]},
            "expected tags to be a list of strings of 1 to 256 bytes without NUL, got 1.",
        ),
        ({"tags": [""]}, "expected tags"),
        ({"tags": ["a\0"]}, "expected tags"),
        ({"tags": ["\ud800"]}, "expected tags"),
        ({"tags": 5}, "expected tags to be a list of strings, got 5."),
        (
            {"correlation_id": 5},
            "expected correlation_id to be text of at most 256 bytes without NUL, got 5.",
        ),
        ({"correlation_id": "a\0"}, r"got 'a\x00'."),
        ({"correlation_id": "\ud800"}, "expected correlation_id to be text"),
        ({"metadata": ["a"]}, "expected metadata to be a dict, got ['a']."),
        ({"metadata": None}, "expected metadata to be a dict, got None."),
        ({"metadata": {"a": object()}}, "at metadata['a']"),
        ({"metadata": {"a": ["\0"]}}, "without NUL characters at metadata['a'][0]"),
    ],
)
def test_a_wrong_option_is_refused_when_the_task_is_declared(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidTask) as caught:
        task(**options)(plain)
    assert str(caught.value).startswith("@task plain expected ") or "metadata" in said
    assert said in str(caught.value)


def test_atomic_is_refused_for_async_functions() -> None:
    with pytest.raises(InvalidTask, match="expected a plain function for atomic=True"):
        task(atomic=True)(coroutine)


def test_an_unknown_option_is_named_with_the_known_ones() -> None:
    with pytest.raises(TypeError) as caught:
        task(tries=3)  # type: ignore[call-overload]
    assert "unknown options ['tries']. Expected some of [" in str(caught.value)
    assert "'max_attempts'" in str(caught.value)


def test_a_task_cannot_have_a_time_of_its_own() -> None:
    with pytest.raises(TypeError, match=r"run_after.*use \.using\(run_after=\.\.\.\)"):
        task(run_after=timedelta(1))(plain)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "function",
    [
        len,
        print,
        Holder,
        functools.partial(plain, 1),
        Holder.method,
        Holder.static,
        nameless,
        lambda: None,
        "plain",
        tasks.add,
    ],
)
@pytest.mark.parametrize("options", [{}, {"max_attempts": 5}])
def test_what_no_worker_could_find_is_no_task(function: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask, match=r"at a module level|a module-level function"):
        task(**options)(function)


def test_a_wrong_function_with_wrong_options_is_still_invalid() -> None:
    with pytest.raises(InvalidTask):
        task(max_attempts=0)(functools.partial(plain, 1))


@pytest.mark.parametrize("function", [plain, coroutine])
def test_context_must_be_the_first_argument_of_who_takes_it(function: Callable[..., Any]) -> None:
    with pytest.raises(InvalidTask, match="does not have a first argument of 'context'"):
        task(takes_context=True)(function)


def test_using_changes_what_it_is_given_and_nothing_else() -> None:
    declared = task(
        priority=5, max_attempts=3, backoff=[7], timeout=9, tags=["a"], metadata={"m": 1}
    )(plain)
    when = datetime(2030, 1, 1, tzinfo=UTC)
    changes: dict[str, Any] = {
        "priority": 6,
        "queue_name": "other",
        "run_after": when,
        "max_attempts": 4,
        "timeout": 1.5,
        "correlation_id": "c",
        "tags": ("b",),
        "metadata": {"n": 2},
    }
    for name, value in changes.items():
        changed = declared.using(**{name: value})
        assert changed == dataclasses.replace(declared, **{name: value})
        assert getattr(changed, name) == value
        assert changed.backoff == [7]
    assert declared.using() == declared
    assert declared.using(**dict.fromkeys(changes)) == declared


def test_using_may_be_chained() -> None:
    changed = tasks.add.using(priority=1).using(queue_name="q").using(priority=2)
    assert (changed.priority, changed.queue_name) == (2, "q")


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"timeout": -1},
        {"tags": "abc"},
        {"correlation_id": "\0"},
        {"metadata": []},
        {"priority": 101},
        {"queue_name": ""},
    ],
    ids=str,
)
def test_using_checks_what_it_is_given(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidTask):
        tasks.add.using(**options)


@pytest.mark.parametrize(
    "option",
    [
        *("max_attempts", "timeout", "rate_cost", "correlation_id", "max_losses", "merge"),
        *("concurrency_limit", "max_wait", "expires", "on_failure", "subject", "after"),
        *("queue_name", "run_after", "concurrency_key", "rate_limit", "unique_key"),
    ],
)
def test_a_number_of_more_digits_than_python_prints_is_refused_as_any_other(option: str) -> None:
    with pytest.raises(InvalidTask, match=rf"{option}.*<int: Exceeds the limit"):
        tasks.add.using(**{option: 10**5_000})


@pytest.mark.parametrize("option", ["backoff", "retry_on", "discard_on", "atomic", "remote"])
def test_using_does_not_take_what_belongs_to_the_declaration(option: str) -> None:
    said = f".using() does not take {option}; declare it with the task: @task({option}=...)."
    with pytest.raises(TypeError, match=re.escape(said)):
        tasks.add.using(**{option: None})


@pytest.mark.parametrize(
    ("option", "ours"),
    [("queue", "queue_name"), ("max_retries", "max_attempts"), ("countdown", "run_after")],
)
def test_using_says_what_it_calls_an_option_of_others(option: str, ours: str) -> None:
    with pytest.raises(TypeError, match=rf"^\.using\(\) does not take {option}; use {ours}\.$"):
        tasks.add.using(**{option: 3})


def test_the_decorator_says_what_it_calls_an_option_of_others() -> None:
    with pytest.raises(TypeError, match=r"^@task does not take queue; use queue_name\.$"):
        task(queue="x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"does not take eta; use \.using\(run_after=\.\.\.\)"):
        task(eta="x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"does not take retries; use max_attempts\."):
        task(retries=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"does not take cron; use schedule\."):
        task(cron="@daily")  # type: ignore[call-overload]


def test_using_names_what_nobody_knows_with_what_it_takes() -> None:
    with pytest.raises(
        TypeError, match=r"got unknown options \['timout'\]\. Did you mean timeout\?"
    ):
        tasks.add.using(timout=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("run_after", ["tomorrow", 5, date(2030, 1, 1), True])
def test_a_time_must_be_a_datetime_or_a_timedelta(run_after: Any) -> None:
    with pytest.raises(InvalidTask, match=r"expected run_after to be a datetime .*, got "):
        tasks.add.using(run_after=run_after)


def test_a_task_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        tasks.add.priority = 5


def test_tasks_can_be_compared_and_put_into_sets() -> None:
    listed = task(backoff=[1], metadata={"a": 1})(plain)
    assert listed == task(backoff=[1], metadata={"a": 1})(plain) != task(plain)
    assert len({listed, task(backoff=[1], metadata={"a": 1})(plain), task(plain)}) == 2


def test_a_task_is_not_called_by_mistake() -> None:
    with pytest.raises(TypeError, match="not callable"):
        tasks.add(1, 2)  # type: ignore[operator]
