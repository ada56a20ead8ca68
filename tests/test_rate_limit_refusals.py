"""What `acquire` and its like refuse, and what they say then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import IntegrityError

from django_pgjobs import JobError, UnknownRateLimit, aacquire, acquire, try_acquire
from django_pgjobs.models import RateLimit, RateState

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept_session")]


def test_a_cost_above_the_burst_can_never_be_paid() -> None:
    RateLimit.objects.create(name="api", count=100, period=60, burst=5)
    with pytest.raises(ValueError, match=r"cost of at most 5, the burst of 'api', got 6\. Raise"):
        acquire("api", cost=6)
    assert not RateState.objects.exists()


@pytest.mark.parametrize("cost", [0, -1, 2**31, 10**5_000], ids=["0", "-1", "2**31", "no repr"])
def test_a_cost_is_positive(cost: int) -> None:
    with pytest.raises(ValueError, match="a cost that is a whole number from 1 to 2147483647, got"):
        acquire("api", cost=cost)


@pytest.mark.parametrize("cost", [True, 1.5, "1", None])
def test_a_cost_is_a_whole_number(cost: Any) -> None:
    with pytest.raises(TypeError, match="expected a cost in whole tokens, got"):
        acquire("api", cost=cost)


@pytest.mark.parametrize("key", ["", "a\nb", "a\0b", "k" * 513, "\ud800", []])
def test_a_key_is_one_line_of_text(key: Any) -> None:
    with pytest.raises(ValueError, match="expected a"):
        acquire(key)


@pytest.mark.parametrize("key", [17, None, ["a", 17], b"a", [10**5_000]])
def test_a_key_is_text(key: Any) -> None:
    with pytest.raises(TypeError):
        acquire(key)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf")])
def test_a_timeout_is_a_duration(timeout: float) -> None:
    with pytest.raises(ValueError, match="expected timeout to be 0 seconds or more, and finite"):
        acquire("api", timeout=timeout)


@pytest.mark.parametrize("timeout", ["1", True])
def test_a_timeout_is_no_text(timeout: Any) -> None:
    with pytest.raises(TypeError, match="expected timeout to be a number of seconds or a timede"):
        acquire("api", timeout=timeout)
    with pytest.raises(TypeError, match="expected timeout to be a number"):
        asyncio.run(aacquire("api", timeout=timeout))


def test_the_error_of_a_key_without_a_limit_says_how_to_make_one() -> None:
    with pytest.raises(LookupError, match=r"there is no rate limit for 'x:1'\. Create 'x' in"):
        acquire("x:1")
    assert issubclass(UnknownRateLimit, JobError)
    assert not RateState.objects.exists()


@pytest.mark.parametrize("function", [acquire, try_acquire])
def test_the_event_loop_is_not_to_be_blocked(function: Callable[[str], object]) -> None:
    async def take() -> None:
        function("api")

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(take())


def test_a_burst_above_the_count_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match=r"expected burst to be at most the count, 5, got 6\."):
        RateLimit.objects.create(name="api", count=5, burst=6, period=1.0)
    assert not RateLimit.objects.exists()
    RateLimit.objects.create(name="api", count=5, burst=5, period=1.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"count": 5, "burst": 6, "period": 1.0}, "burst_is_from_1_to_the_count"),
        ({"count": 5, "burst": 0, "period": 1.0}, "burst_is_from_1_to_the_count"),
        ({"count": 0, "period": 1.0}, "count_is_positive"),
        ({"count": 5, "period": 0.0}, "period_is_1_ms_to_366_days"),
    ],
)
def test_the_constraints_of_a_limit_say_what_is_wrong(given: dict[str, Any], said: str) -> None:
    with pytest.raises(IntegrityError, match=f"pgjobs_rate_limit_{said}"):
        RateLimit.objects.bulk_create([RateLimit(name="api", **given)])
