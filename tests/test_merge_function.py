"""Merging by a function of the project's own: called in Python, with the waiting job locked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from django_pgjobs import JobError, Task, task
from django_pgjobs.compat import InvalidTask
from tests.factories import count_jobs, get_job, make_job
from tests.models import Effect
from tests.test_unique import start_job, statements

pytestmark = pytest.mark.django_db

Arguments = dict[str, Any]


def lowest(former: Arguments, latter: Arguments) -> Arguments:
    """Keep the lowest price, and count."""
    prices = [former["price"], latter["price"]]
    return {**latter, "price": min(prices), "count": former.get("count", 1) + 1}


@task(unique_key="p:{product}", on_conflict="merge", merge=lowest)
def reprice(product: int, price: Any, count: int = 1) -> None:
    """Merged by a function."""


@task(unique_key="p:{product}", on_conflict="merge", merge=f"{__name__}.lowest")
def reprice_by_path(product: int, price: Any, count: int = 1) -> None:
    """Merged by a function that is found when it is needed."""


def by(function: Callable[[Arguments, Arguments], Any]) -> Task:
    """Return the task with another function."""
    return reprice.using(merge=function)


@pytest.mark.parametrize("unique", [reprice, reprice_by_path], ids=["function", "path"])
def test_a_function_merges_what_waits_with_what_comes(unique: Task) -> None:
    job = unique.enqueue(1, 5)
    assert (job.args, job.kwargs) == ([], {"product": 1, "price": 5})
    again = unique.enqueue(1, price=7)
    assert again.id == job.id
    assert again.kwargs == {"product": 1, "price": 5, "count": 2}
    unique.enqueue(1, price=3)
    row = get_job(job.id)
    assert (row.args, row.kwargs) == ([], {"product": 1, "price": 3, "count": 3})
    assert row.merged_count == 2
    assert unique.get_result(job.id).kwargs == row.kwargs


def test_it_is_given_plain_values_of_its_own() -> None:
    seen: list[Arguments] = []

    def keep(former: Arguments, latter: Arguments) -> Arguments:
        seen.extend([former, latter])
        latter["price"].append(4)
        return latter

    mine = [(1, 2), b"x"]
    by(keep).enqueue(1, mine)
    by(keep).enqueue(1, mine)
    assert seen[0] == {"product": 1, "price": [[1, 2], "x"]}
    assert mine == [(1, 2), b"x"]
    assert seen[1]["price"] == [[1, 2], "x", 4]


def test_the_first_job_is_not_merged_with_anything() -> None:
    def never(former: Arguments, latter: Arguments) -> Arguments:
        raise AssertionError

    assert by(never).enqueue(1, 5).id != by(never).enqueue(2, 5).id
    start_job(by(never).enqueue(3, 5).id)
    by(never).enqueue(3, 5)
    assert count_jobs() == 4


def test_keys_are_made_of_what_it_returned_and_the_unique_key_stays() -> None:
    def move(former: Arguments, latter: Arguments) -> Arguments:
        return {**latter, "product": 9}

    unique = by(move).using(concurrency_key="shop:{product}", rate_limit="r:{price}")
    job = unique.enqueue(1, 5)
    unique.enqueue(1, 6)
    row = get_job(job.id)
    assert (row.unique_key, row.concurrency_key, row.rate_limit_keys) == ("p:1", "shop:9", "r:6")


def boom(former: Arguments, latter: Arguments) -> Any:
    """Raise."""
    raise ZeroDivisionError("on purpose")


BAD: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "raises": (boom, JobError, r"boom, which merges arguments of .*reprice, raised Zero.*for job"),
    "nothing": (
        lambda f, n: None,
        TypeError,
        r"merging into job \d+: expected a dict of keyword arguments, got None",
    ),
    "unknown argument": (lambda f, n: {**n, "x": 1}, TypeError, r"merging .* unexpected keyword"),
    "missing argument": (lambda f, n: {"product": 1}, TypeError, "missing a required argument"),
    "value": (lambda f, n: {**n, "price": object()}, TypeError, r"Unsupported type.*\['price'\]"),
    "size": (lambda f, n: {**n, "price": "x" * 300_000}, ValueError, "at most 262144 bytes"),
    "signature": (lambda f: f, JobError, "raised TypeError"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_goes_wrong_in_it_reaches_the_caller_and_changes_nothing(name: str) -> None:
    """A merge callable that raises."""
    function, error, said = BAD[name]
    job = reprice.enqueue(1, 5)
    before = get_job(job.id)
    with transaction.atomic():
        Effect.objects.create(key="kept")
        for call in (
            lambda: by(function).enqueue(1, 6),
            lambda: by(function).enqueue_many([(2, 1), (1, 6)]),
            lambda: by(function).enqueue_many([(2, 1), (2, 6)]),
        ):
            with pytest.raises(error, match=said) as caught:
                call()
            assert name != "raises" or isinstance(caught.value.__cause__, ZeroDivisionError)
        assert get_job(job.id) == before
        reprice.enqueue(1, 4)
    assert (get_job(job.id).kwargs["price"], count_jobs()) == (4, 1)
    assert Effect.objects.count() == 1


def test_many_are_merged_one_after_the_other() -> None:
    """Those of one call too; each is counted."""
    old = reprice.enqueue(2, 10)
    ids = reprice.enqueue_many([(1, 5), (2, 11), (1, 4), (3, 1), (1, 6), (2, 9)])
    assert ids[0] == ids[2] == ids[4]
    assert ids[1] == ids[5] == old.id
    rows = [get_job(job_id) for job_id in (ids[0], ids[1], ids[3])]
    assert [(row.kwargs["price"], row.merged_count) for row in rows] == [(4, 2), (9, 2), (1, 0)]
    assert [row.kwargs.get("count") for row in rows] == [3, 3, None]


def test_a_waiting_job_with_positional_arguments_gives_them_their_names() -> None:
    job_id = make_job(reprice.module_path, unique_key="p:1", unique_until_claimed=True, args=[1, 8])
    assert reprice.enqueue(1, 9).kwargs == {"product": 1, "price": 8, "count": 2}
    assert get_job(job_id).args == []


def test_a_path_that_leads_nowhere_is_refused_before_anything_is_sent() -> None:
    def refused() -> None:
        for path in ("tests.nowhere.merge", f"{__name__}.nothing", f"{__name__}.Arguments.x"):
            with pytest.raises(InvalidTask, match=f"reprice option merge='{path}': "):
                reprice.using(merge=path).enqueue(1, 2)

    assert statements(refused) == []


def test_enqueue_from_refuses_a_function_and_names_the_other_way() -> None:
    def refused() -> None:
        with pytest.raises(TypeError, match=r"cannot call lowest.*Use enqueue_many\(\)"):
            reprice.enqueue_from(Effect.objects.all(), product=1, price=2)

    assert statements(refused) == []


def test_what_it_returns_may_be_as_large_as_any_arguments() -> None:
    with override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": 1_000_000}):
        large = "x" * 999_000
        job = by(lambda f, n: {**n, "price": large}).enqueue(1, 2)
        by(lambda f, n: {**n, "price": large}).enqueue(1, 2)
        assert len(json.dumps(get_job(job.id).kwargs)) > 999_000
