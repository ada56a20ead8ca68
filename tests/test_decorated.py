"""Tasks whose function is decorated with functools.wraps: what it accepts, and keys of it.

Issue 13, point 4: the signature that counts is that of the outermost function. A decorator may
give the function other arguments than it takes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import F, IntegerField
from django.db.models.functions import Cast

from django_pgjobs import task
from django_pgjobs.admin.job_list.previews import arguments_line
from django_pgjobs.compat import InvalidTask
from django_pgjobs.declaring.signatures import Signature
from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from tests.factories import count_jobs, get_job
from tests.models import Effect

pytestmark = pytest.mark.django_db

Function = Callable[..., Any]
KEY = "shop:{shop_id}:{region}"


def passing(function: Function) -> Function:
    """Pass everything on."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def with_client(function: Function) -> Function:
    """Give the function a first argument."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function("client", *args, **kwargs)

    return wrapper


def with_flag(function: Function) -> Function:
    """Take an argument that the function does not get."""

    @functools.wraps(function)
    def wrapper(*args: Any, dry_run: bool = False, **kwargs: Any) -> Any:
        return [dry_run, function(*args, **kwargs)]

    return wrapper


def with_tenant(function: Function) -> Function:
    """Take the first argument, which the function does not get."""

    @functools.wraps(function)
    def wrapper(tenant: str, *args: Any, **kwargs: Any) -> Any:
        return [tenant, function(*args, **kwargs)]

    return wrapper


def closed(function: Function) -> Function:
    """Take exactly one argument, and give the function two."""

    @functools.wraps(function)
    def wrapper(shop_id: int) -> Any:
        return function("client", shop_id)

    return wrapper


def declares(function: Function) -> Function:
    """Say what it takes, as libraries for decorators do."""
    wrapper: Any = passing(function)
    wrapper.__signature__ = Signature(plain.func, False).full
    return wrapper  # type: ignore[no-any-return]


@task(concurrency_key=KEY)
def plain(shop_id: int, region: str = "eu") -> list[Any]:
    """Have no decorator."""
    return [shop_id, region]


@task(concurrency_key=KEY)
@passing
def passed(shop_id: int, region: str = "eu") -> list[Any]:
    """Have one that changes nothing."""
    return [shop_id, region]


@task(concurrency_key=KEY)
@with_client
def injected(client: str, shop_id: int, region: str = "eu") -> list[Any]:
    """Get the first argument from the decorator."""
    return [client, shop_id, region]


@task(concurrency_key=KEY)
@with_flag
@passing
def flagged(shop_id: int, region: str = "eu") -> list[Any]:
    """Lose one argument to the decorator."""
    return [shop_id, region]


@task(concurrency_key=KEY)
@with_tenant
@with_client
def tenanted(client: str, shop_id: int, region: str = "eu") -> list[Any]:
    """Lose one and get another."""
    return [client, shop_id, region]


@task
@closed
def narrowed(client: str, shop_id: int) -> list[Any]:
    """Be called with less than it has."""
    return [client, shop_id]


@task(concurrency_key=KEY)
@declares
@passing
def declared(*args: Any, **kwargs: Any) -> list[Any]:
    """Have a signature that says more than the function."""
    return [*args, kwargs]


@task
@with_client
@declares
def copied(*args: Any, **kwargs: Any) -> list[Any]:
    """Have a decorator that functools.wraps gives a signature which is not its own."""
    return [*args, kwargs]


@task(takes_context=True, concurrency_key="{shop_id}")
@passing
def with_context(context: Any, shop_id: int) -> list[Any]:
    """Take the context through a decorator."""
    return [context.attempt, shop_id]


@task(concurrency_key=lambda shop_id, **others: f"{shop_id}")
@with_client
def by_function(client: str, shop_id: int) -> None:
    """Have a key that is a function."""


@task(concurrency_key="{args}")
@with_client
def by_all(client: str, shop_id: int) -> None:
    """Have a key of all arguments."""


@task(unique_key="one", on_conflict="merge", merge="last")
@with_client
def latest(client: str, shop_id: int) -> list[Any]:
    """Be replaced."""
    return [client, shop_id]


@task(unique_key="one", on_conflict="merge")
@passing
def merged(shop_ids: list[int], n: int = 0) -> None:
    """Be merged by name."""


@task(unique_key="one", on_conflict="merge")
@with_client
def merged_with_client(client: str, shop_ids: list[int]) -> None:
    """Be merged by names that are known of keywords only."""


@task
@passing
def secretive(shop_id: int, api_token: str) -> None:
    """Have a secret behind a decorator."""


@task
@with_tenant
def secretive_tenant(api_token: str) -> None:
    """Have one behind an argument that the decorator takes away."""


CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], list[Any], str]] = {
    "plain": (plain, (5,), {}, [5, "eu"], "shop:5:eu"),
    "passed by place": (passed, (5, "us"), {}, [5, "us"], "shop:5:us"),
    "passed by name": (passed, (), {"shop_id": 5}, [5, "eu"], "shop:5:eu"),
    "injected": (injected, (), {"shop_id": 5}, ["client", 5, "eu"], "shop:5:eu"),
    "flagged": (flagged, (5,), {"dry_run": True}, [True, [5, "eu"]], "shop:5:eu"),
    "flagged by name": (flagged, (), {"shop_id": 5}, [False, [5, "eu"]], "shop:5:eu"),
    "tenanted": (
        *(tenanted, ("a",), {"shop_id": 5, "region": "us"}),
        *(["a", ["client", 5, "us"]], "shop:5:us"),
    ),
    "declared": (declared, (5,), {}, [5, {}], "shop:5:eu"),
    "context": (with_context, (5,), {}, [1, 5], "5"),
    "context by name": (with_context, (), {"shop_id": 5}, [1, 5], "5"),
    "function": (by_function, (), {"shop_id": 5}, [], "5"),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_the_function_accepts_is_enqueued_and_runs(name: str) -> None:
    """And the key is made of the names that the wrapped function has for the arguments."""
    called, args, kwargs, returned, key = CALLS[name]
    one = called.enqueue(*args, **kwargs).id
    items = [kwargs] if kwargs and not args else [args] if not kwargs else []
    many = called.enqueue_many(items)
    run_jobs()
    for job_id in [one, *many]:
        job = get_job(job_id)
        assert (job.status, job.concurrency_key) == ("successful", key), job.errors
        assert (job.result or []) == returned


@pytest.mark.parametrize(
    ("called", "args", "kwargs"),
    [
        (narrowed, (5,), {"client": "x"}),
        (narrowed, (), {}),
        (narrowed, (1, 2), {}),
        (tenanted, (), {"shop_id": 5}),
        (declared, (), {"shop": 5}),
        (declared, (1, 2, 3), {}),
        (plain, (1, 2, 3), {}),
    ],
)
def test_what_the_outermost_function_does_not_accept_is_refused(
    called: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match="cannot be called with the arguments given"):
        called.enqueue(*args, **kwargs)
    assert count_jobs() == 0


def test_what_a_decorator_narrows_is_what_counts() -> None:
    job_id = narrowed.enqueue(5).id
    run_jobs()
    assert get_job(job_id).result == ["client", 5]


def test_a_signature_that_was_copied_is_not_that_of_the_decorator() -> None:
    job_id = copied.enqueue(5, "us").id
    run_jobs()
    assert get_job(job_id).result == ["client", 5, "us", {}]


def test_a_key_is_never_made_of_a_guess() -> None:
    """Which of its arguments the decorator's come before is not known; a job is enqueued or not."""
    with pytest.raises(TypeError, match="concurrency_key needs 'shop_id' by name, but a decorator"):
        injected.enqueue(5)
    with pytest.raises(TypeError, match="needs its arguments by name"):
        by_function.enqueue(5)
    with pytest.raises(TypeError, match="the argument 'shop_id', which concurrency_key names, to"):
        injected.enqueue(region="eu")
    with pytest.raises(TypeError, match="the argument 'shop_id', which concurrency_key names, to"):
        injected.enqueue_from(Effect.objects.all(), region="eu")
    assert count_jobs() == 0
    first, second = by_all.enqueue(5), by_all.enqueue(6)
    assert get_job(first.id).concurrency_key != get_job(second.id).concurrency_key


def test_enqueue_from_knows_the_names_too() -> None:
    row = Effect.objects.create(key="a")
    pk = Cast(F("pk"), IntegerField())
    for called in (passed, injected, flagged):
        assert called.enqueue_from(Effect.objects.all(), shop_id=pk) == 1
    keys = [job.concurrency_key for job in Job.objects.all()]
    assert keys == [f"shop:{row.pk}:eu"] * 3


def test_arguments_are_merged_where_their_names_are_known() -> None:
    first = merged.enqueue([1], n=2)
    assert merged.enqueue([2]).id == first.id
    assert get_job(first.id).kwargs == {"shop_ids": [1, 2], "n": 2}
    named = merged_with_client.enqueue(shop_ids=[1])
    merged_with_client.enqueue(shop_ids=[2])
    assert get_job(named.id).kwargs == {"shop_ids": [1, 2]}
    with pytest.raises(TypeError, match="no names, so they cannot be merged"):
        merged_with_client.enqueue([3])
    newest = latest.enqueue(5)
    assert latest.enqueue(6).id == newest.id
    assert get_job(newest.id).args == [6]


def test_a_template_may_name_what_any_of_the_functions_takes() -> None:
    task(concurrency_key="{dry_run}:{shop_id}")(flagged.func)
    with pytest.raises(InvalidTask, match="names \\['shop'\\], which is no argument of the task"):
        task(concurrency_key="{shop}")(flagged.func)
    with pytest.raises(InvalidTask, match="names \\['client'\\]"):
        task(concurrency_key="{client}")(narrowed.func)


def test_a_secret_behind_a_decorator_is_masked_in_a_list() -> None:
    line = arguments_line(secretive.module_path, '[5, "s3cret"]', "{}")
    assert "5" in line
    assert "s3cret" not in line
    line = arguments_line(secretive_tenant.module_path, '["a", "s3cret"]', "{}")
    assert "s3cret" not in line


def test_the_text_of_a_signature_is_the_first_that_names_something() -> None:
    assert Signature(passed.func, False).text.startswith("(shop_id: 'int', region: 'str' = 'eu')")
    assert Signature(with_context.func, True).text.startswith("(shop_id: 'int')")
    assert Signature(narrowed.func, False).text.startswith("(shop_id: 'int')")


def test_functions_that_wrap_each_other_have_an_end() -> None:
    def first(*args: Any) -> None: ...

    def second(*args: Any) -> None: ...

    first.__wrapped__, second.__wrapped__ = second, first  # type: ignore[attr-defined]
    assert len(Signature(first, False).levels) == 2
    first.__wrapped__ = int  # type: ignore[attr-defined]
    assert Signature(first, False).call((1, 2), {}).rest == [1, 2]
