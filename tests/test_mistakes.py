"""Calls that a newcomer gets wrong: each is refused with what to write instead."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from django_pgjobs import (
    CurrentJob,
    Exponential,
    Retry,
    Task,
    acquire,
    agroup,
    aworkflow,
    cancel,
    chain,
    group,
    pause,
    requeue,
    reschedule,
    resume,
    task,
    try_acquire,
    workflow,
)
from django_pgjobs.compat import InvalidTask
from django_pgjobs.declaring.retries import delay_after
from django_pgjobs.http.signatures import sign, verify
from django_pgjobs.models import Batch, Job
from django_pgjobs.schedules.control import (
    backfill,
    pause_schedule,
    resume_schedule,
    run_now,
    skip_next,
)
from django_pgjobs.schedules.skipping import unskip
from tests.models import Effect
from tests.tasks import add
from tests.worker.support import make_attempt_of

declare: Any = task
ADD = "tests.tasks.add"
NAIVE = datetime(2031, 1, 1)  # noqa: DTZ001


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


# What is called


@pytest.mark.parametrize("name", ["add", "add_many", "each", "then", "seal", "pk"])
def test_a_workflow_has_no_batch_before_its_block(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(workflow("sums"), name)
    assert str(caught.value) == (
        f"workflow() has no {name!r} before its block. Write `with workflow(...) as flow:`, and "
        f"flow.{name} in the block."
    )


def test_what_python_itself_asks_of_a_workflow_is_not_there() -> None:
    assert not hasattr(workflow("sums"), "__len__")
    copy.copy(workflow("sums"))


def bad(call: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """Return what a call is refused with, that no type checker would pass."""
    with pytest.raises((TypeError, ValueError)) as caught:
        call(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("given", [math.inf, math.nan])
def test_no_length_of_time_is_proposed_that_is_none(given: float) -> None:
    with pytest.raises(InvalidTask, match=rf"got {given}\.$"):
        add.using(run_after=given)


@pytest.mark.parametrize(("function", "name"), [(pause, "pause"), (resume, "resume")])
def test_what_is_paused_is_named(function: Callable[..., object], name: str) -> None:
    assert bad(function, "mail") == (
        f"{name}() takes what to {name} by name, got 'mail'. Write {name}(queue='mail'), or "
        "task= or key=."
    )
    assert f"Write {name}(task=tests.tasks.add), or queue= or key=." in bad(function, add)
    assert f"got 5. Write {name}(queue=...), or task= or key=." in bad(function, 5)


@pytest.mark.parametrize("given", [plain, 5, add.s(1, 2)], ids=["function", "number", "call"])
def test_a_task_to_pause_is_a_task_or_its_path(given: Any) -> None:
    assert "expected task= to be a task or its path, got " in bad(pause, task=given)


def test_a_group_takes_one_list() -> None:
    said = "expected a list of calls, as in group([push.s(17)]), got 2 arguments."
    assert bad(group, add.s(1, 2), add.s(3, 4)) == said
    assert bad(async_to_sync(agroup), add.s(1, 2), add.s(3, 4)) == said


@pytest.mark.django_db
@pytest.mark.parametrize("calls", [[add.s(1, 2)], (add.s(1, 2),)], ids=["list", "tuple"])
def test_a_chain_takes_no_list(calls: Any) -> None:
    said = bad(chain, calls)
    assert said.startswith("expected a call such as push.s(17), got ")
    assert said.endswith(". Give the calls of a list with a star: *calls.")
    with workflow("sums") as sums:
        assert bad(sums.add, calls) == said


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("enqueue", "task.enqueue(...) with the arguments, or group([call])"),
        ("delay", "task.enqueue(...) with the arguments, or group([call])"),
        ("apply_async", "task.enqueue(...) with the arguments, or group([call])"),
        ("using", "task.using(...).s(...)"),
        ("set", "task.using(...).s(...)"),
    ],
)
def test_a_call_says_how_it_is_enqueued(name: str, ours: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(add.s(1, 2), name)
    assert str(caught.value) == f"'Call' object has no attribute {name!r}. Write {ours}."


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("delay", "chain(...) or group(...) alone, which enqueue it"),
        ("apply_async", "chain(...) or group(...) alone, which enqueue it"),
        ("get", ".wait(timeout).results()"),
        ("ready", ".explain().is_complete"),
    ],
)
def test_a_batch_says_what_it_calls_a_method_of_others(name: str, ours: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(Batch(), name)
    assert str(caught.value) == f"'Batch' object has no attribute {name!r}. Write {ours}."


@pytest.mark.django_db
@pytest.mark.parametrize("option", ["priority", "run_after", "queue_name", "countdown", "queue"])
def test_an_option_is_no_argument(option: str) -> None:
    ours = {"countdown": "run_after", "queue": "queue_name"}.get(option, option)
    said = f"Give options before, by .using({ours}=...)."
    assert bad(add.enqueue, 1, 2, **{option: 5}).endswith(said)
    assert bad(add.enqueue_many, [{"a": 1, "b": 2, option: 5}]).endswith(said)
    assert bad(add.enqueue, 1, **{option: 5}).endswith(f"It takes no {option!r}. {said}")


def test_a_misspelt_argument_is_no_option() -> None:
    assert "using" not in bad(add.enqueue, 1, c=2)


@pytest.mark.django_db
@pytest.mark.parametrize("given", [5, None, add.s(1, 2), {"a": 1, "b": 2}, "text"], ids=str)
def test_many_arguments_are_a_list(given: Any) -> None:
    said = "expected a list of dicts or tuples, one for each job, got "
    assert said in bad(add.enqueue_many, given)
    with workflow("sums") as sums:
        assert said in bad(sums.add_many, add, given)


@pytest.mark.parametrize("given", [5, None, b"shopify"])
def test_a_rate_limit_has_a_key(given: Any) -> None:
    said = f"expected a key such as 'shopify:17' or several, got {given!r}."
    assert bad(acquire, given) == bad(try_acquire, given) == said


@pytest.mark.parametrize("given", [5, 2.5, timedelta(minutes=1)])
def test_the_reason_of_a_retry_is_no_delay(given: Any) -> None:
    assert (
        bad(Retry, given) == f"expected reason to be text, got {given!r}. Write Retry(after=...)."
    )


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (lambda: "x", "got an unexpected keyword argument 'a'"),
        (lambda a: a, "got an unexpected keyword argument 'b'"),
        (lambda a, b, c: c, "missing a required argument: 'c'"),
    ],
)
def test_a_key_function_takes_all_arguments(key: Any, problem: str) -> None:
    assert bad(add.using(unique_key=key).enqueue, 1, 2) == (
        f"unique_key is called with all arguments by name, (a=..., b=...): {problem}."
    )


def test_an_error_inside_a_key_function_is_its_own() -> None:
    assert "unique_key" not in bad(add.using(unique_key=lambda a, b: a + "x").enqueue, 1, 2)


OTHERS: dict[str, Callable[[], object]] = {
    "batch": lambda: Batch(pk=5, name="sums"),
    "row": lambda: Effect(pk=5),
    "task": lambda: add,
    "queryset": Job.objects.none,
    "list": lambda: [4711, 4712],
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("function", [cancel, requeue, partial(reschedule, run_after=None)])
def test_what_is_no_job_is_not_taken_for_one(kind: str, function: Callable[..., object]) -> None:
    """Though it has an id: that of another row."""
    said = bad(function, OTHERS[kind]())
    assert said.startswith("expected a job, its id or its TaskResult, got ")
    assert said.endswith(" Give one job at a time.") == (kind in ("queryset", "list"))
    assert len(said) < 250


def test_a_batch_is_no_predecessor() -> None:
    with pytest.raises(InvalidTask, match=r"A batch has methods of its own, .+ then"):
        add.using(after=Batch(pk=5))
    with pytest.raises(InvalidTask, match="expected a job, its id or its TaskResult, got <Effect"):
        add.using(after=[Effect(pk=5)])


@pytest.mark.django_db
@pytest.mark.parametrize("function", [run_now, pause_schedule, resume_schedule, skip_next, unskip])
@pytest.mark.parametrize("given", [add, 5, None])
def test_a_schedule_is_named(function: Callable[..., object], given: Any) -> None:
    said = bad(function, given)
    assert said.startswith("expected the name of a schedule, got ")
    assert said.endswith(". Without name= it is the path of the task, as text.")


@pytest.mark.parametrize(("given", "error"), [(5, TypeError), (NAIVE, ValueError)])
def test_a_backfill_is_between_two_instants(given: Any, error: type[Exception]) -> None:
    now = datetime.now(UTC)
    with pytest.raises(error, match=r"backfill.. expected a begin.* with a time zone, got "):
        backfill("nightly", given, now)
    with pytest.raises(error, match=r"backfill.. expected an end.* with a time zone, got "):
        backfill("nightly", now, given)


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (("50%",), "expected done to be a number, got '50%'."),
        ((None,), "expected done to be a number, got None."),
        ((Decimal(5),), "expected done to be a number, got Decimal('5')."),
        ((5, "10"), "expected total to be a number or None, got '10'."),
    ],
)
def test_progress_is_a_number(report: tuple[Any, ...], said: str) -> None:
    assert bad(CurrentJob(make_attempt_of(1)).progress, *report) == said


@pytest.mark.django_db
@pytest.mark.parametrize("fill", [5, None, add])
def test_an_async_workflow_is_filled_by_a_function(fill: Any) -> None:
    said = "expected fill to be a plain function that takes the batch, got "
    assert bad(async_to_sync(aworkflow), "sums", fill).startswith(said)
    assert not Batch.objects.exists()


@pytest.mark.parametrize(
    ("body", "secret", "said"),
    [
        ("{}", "secret", "expected the body to be bytes, as it came, got str."),
        (b"{}", ["old", "new"], "expected each secret to be text, got list."),
        (b"{}", b"secret", "expected each secret to be text, got bytes."),
    ],
)
def test_a_call_back_is_verified_by_its_bytes(body: Any, secret: Any, said: str) -> None:
    assert bad(verify, body, sign(b"{}", "secret", at=1), secret) == said
