"""When a failed job is tried again, and what the steering exceptions accept."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from django_pgjobs import Discard, Exponential, Retry, Snooze
from django_pgjobs.declaring.retries import (
    DEFAULT_BACKOFF,
    LONGEST_DELAY_SECONDS,
    Backoff,
    check_backoff,
    delay_after,
)
from django_pgjobs.exceptions import JobSteering


def delay(backoff: Backoff, attempt: int, error: BaseException | None = None) -> float | None:
    """Return the delay after *attempt* failed."""
    return delay_after(
        backoff, attempt=attempt, error=error or ValueError("x"), make_result=lambda: "the result"
    )


def test_a_list_gives_a_delay_per_attempt_and_its_last_one_repeats() -> None:
    """S4.14, S1.21: at once, 10 s, 30 s, 1 to 30 minutes, then 30 minutes."""
    backoff = [0, 10, 30, 60, 120, 300, 600, 900, 1200, 1800]
    assert [delay(backoff, attempt) for attempt in range(1, 13)] == [*backoff, 1800, 1800]


def test_a_tuple_is_a_list() -> None:
    assert delay((1.5,), 7) == 1.5


def test_exponential_grows_up_to_its_maximum() -> None:
    backoff = Exponential(base=3, factor=2, maximum=40, jitter=0)
    assert [delay(backoff, attempt) for attempt in range(1, 7)] == [3, 6, 12, 24, 40, 40]


def test_jitter_shortens_a_delay_by_at_most_its_part() -> None:
    random.seed(1)
    delays = [Exponential(base=8, factor=1, jitter=0.5).delay(1) for _ in range(500)]
    assert all(4 <= seconds <= 8 for seconds in delays)
    assert min(delays) < 4.2
    assert max(delays) > 7.8


def test_jobs_that_failed_together_come_back_apart() -> None:
    """The default has jitter."""
    assert len({delay(DEFAULT_BACKOFF, 5) for _ in range(100)}) > 90


@pytest.mark.parametrize("attempt", [1_000, 10_000, 10**9])
def test_no_number_of_attempts_overflows(attempt: int) -> None:
    assert delay(Exponential(jitter=0), attempt) == 3600
    assert delay(Exponential(base=0), attempt) == 0
    assert delay([1, 2], attempt) == 2


@pytest.mark.parametrize("returned", [90, 90.0, timedelta(minutes=1.5)])
def test_a_callable_may_return_seconds_or_a_timedelta(returned: float | timedelta) -> None:
    assert delay(lambda error, result: returned, 1) == 90


def test_a_callable_sees_the_error_and_the_result_of_the_job() -> None:
    seen: list[Any] = []

    def backoff(error: BaseException, result: Any) -> float:
        seen.extend((error, result))
        return 0

    error = KeyError("k")
    assert delay(backoff, 3, error) == 0
    assert seen == [error, "the result"]


def test_the_result_is_made_for_a_callable_only() -> None:
    def fail() -> None:
        raise AssertionError("the result was made")

    for backoff in ([1], Exponential()):
        delay_after(backoff, attempt=1, error=ValueError(), make_result=fail)


def test_a_callable_ends_the_retries_with_none() -> None:
    assert delay(lambda error, result: None, 1) is None


@pytest.mark.parametrize("returned", [-1, float("nan"), float("inf"), timedelta(seconds=-1)])
def test_a_callable_that_returns_no_duration_is_told_so(returned: Any) -> None:
    with pytest.raises(ValueError, match="expected what backoff returned to be 0 seconds or more"):
        delay(lambda error, result: returned, 1)


@pytest.mark.parametrize("backoff", [[10**9], Exponential(base=1e300, maximum=1e301)])
def test_no_delay_is_longer_than_a_year(backoff: Backoff) -> None:
    assert delay(backoff, 1) == LONGEST_DELAY_SECONDS


@pytest.mark.parametrize("backoff", [[0], (1, 2.5), Exponential(), lambda error, result: 1])
def test_good_backoffs_pass(backoff: Backoff) -> None:
    check_backoff(backoff)


@pytest.mark.parametrize(
    ("backoff", "error", "said"),
    [
        (10, TypeError, r"expected backoff to be a list of seconds, .* got 10\."),
        ("10", TypeError, "got '10'"),
        (None, TypeError, "got None"),
        ({1: 2}, TypeError, "got {1: 2}"),
        (Exponential, TypeError, "got <class '.*Exponential'>"),
        ([], ValueError, r"at least one delay in seconds, got \[\]"),
        ([1, -1], ValueError, r"delays of 0 seconds or more in backoff, got -1\."),
        ([1, "2"], ValueError, "got '2'"),
        ([True], ValueError, "got True"),
        ([float("nan")], ValueError, "got nan"),
        ([float("inf")], ValueError, "got inf"),
    ],
)
def test_bad_backoffs_are_refused(backoff: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        check_backoff(backoff)


@pytest.mark.parametrize(
    "options",
    [
        {"base": -1},
        {"factor": 0.5},
        {"maximum": -1},
        {"base": float("nan")},
        {"factor": float("nan")},
        {"maximum": float("nan")},
    ],
)
def test_exponential_refuses_impossible_numbers(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"expected base and maximum of Exponential .* got "):
        Exponential(**options)


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan")])
def test_exponential_refuses_impossible_jitter(jitter: float) -> None:
    with pytest.raises(ValueError, match="expected jitter of Exponential from 0 to 1, got "):
        Exponential(jitter=jitter)


@pytest.mark.parametrize(
    ("after", "seconds"),
    [(None, None), (0, 0.0), (1.5, 1.5), (timedelta(minutes=1), 60.0)],
)
def test_retry_takes_seconds_or_a_timedelta(
    after: float | timedelta | None, seconds: float | None
) -> None:
    steering = Retry("because", after=after)
    assert (steering.after, str(steering)) == (seconds, "because")


def test_snooze_takes_seconds_or_a_timedelta() -> None:
    assert Snooze(2).seconds == 2.0
    assert Snooze(timedelta(hours=1), "later").seconds == 3600.0


@pytest.mark.parametrize("make", [lambda d: Retry(after=d), Snooze])
@pytest.mark.parametrize("duration", [-1, float("nan"), float("inf"), timedelta(days=-1)])
def test_no_steering_into_the_past(make: Callable[[Any], JobSteering], duration: Any) -> None:
    with pytest.raises(ValueError, match="to be 0 seconds or more, and finite, got "):
        make(duration)


@pytest.mark.parametrize("make", [lambda d: Retry(after=d), Snooze])
@pytest.mark.parametrize("duration", ["5", True, b"5"])
def test_steering_by_numbers_and_timedeltas_only(
    make: Callable[[Any], JobSteering], duration: Any
) -> None:
    with pytest.raises(TypeError, match=r"expected (after|seconds) to be a number of seconds or"):
        make(duration)


def test_a_snooze_has_a_length() -> None:
    with pytest.raises(TypeError, match="expected seconds to be a number of seconds or a timed"):
        Snooze(None)  # type: ignore[arg-type]


def test_other_numbers_are_seconds_too() -> None:
    assert (Snooze(Decimal("1.5")).seconds, Snooze(Fraction(1, 4)).seconds) == (1.5, 0.25)


@pytest.mark.parametrize("given", ["2", True])
def test_numbers_of_exponential_are_numbers(given: Any) -> None:
    with pytest.raises(TypeError, match=r"expected base of Exponential to be a number, got "):
        Exponential(base=given)


def test_steering_exceptions_are_exceptions_of_one_family() -> None:
    for steering in (Retry(), Discard("no use"), Snooze(1)):
        assert isinstance(steering, JobSteering)
        assert isinstance(steering, Exception)
