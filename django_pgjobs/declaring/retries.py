"""When to try again: attempt number -> seconds.

*backoff* of a task is a list of seconds or timedeltas (the last one repeats), an `Exponential`, or
a callable `(exception, task_result) -> seconds | timedelta | None`, where None means no more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from django_pgjobs.exceptions import seconds_or_none
from django_pgjobs.values.bounds import is_number

# The longest delay, a year: a longer one is a mistake in a formula.
LONGEST_DELAY_SECONDS = 366 * 86400.0


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """Wait `base * factor ** (attempt - 1)` seconds, at most *maximum*, with jitter.

    *jitter* is the part of the delay that is random, from 0 to 1: with 0.5 a delay of 8
    seconds becomes something between 4 and 8, so jobs that failed together come back apart.
    *base* and *maximum* are seconds or timedeltas, and are kept in seconds. Raise TypeError for
    what is no number, and ValueError for one out of bounds: base and maximum from 0, factor from 1.
    """

    base: float | timedelta = 2.0
    factor: float = 2.0
    maximum: float | timedelta = 3600.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        for name in ("base", "maximum"):
            object.__setattr__(self, name, _in_seconds(getattr(self, name)))
        for name, value in vars(self).items():
            if not is_number(value):
                raise TypeError(f"expected {name} of Exponential to be a number, got {value!r}.")
        base, maximum = self._bounds()
        if not (base >= 0 and self.factor >= 1 and maximum >= 0):
            raise ValueError(
                "expected base and maximum of Exponential to be 0 or more and factor to be 1 "
                f"or more, got {self!r}."
            )
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"expected jitter of Exponential from 0 to 1, got {self.jitter!r}.")

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after failed attempt number *attempt* (from 1)."""
        base, maximum = self._bounds()
        try:
            full = min(base * self.factor ** (attempt - 1), maximum)
        except OverflowError:
            full = maximum if base else 0.0
        return full * (1 - self.jitter * random.random())

    def _bounds(self) -> tuple[float, float]:
        return cast(float, self.base), cast(float, self.maximum)


def _in_seconds(given: Any) -> Any:
    return given.total_seconds() if isinstance(given, timedelta) else given


Delay = float | timedelta
Backoff = Sequence[Delay] | Exponential | Callable[[BaseException, Any], Delay | None]

DEFAULT_BACKOFF = Exponential()


def check_backoff(backoff: object) -> None:
    """Raise ValueError or TypeError, saying what was expected, if *backoff* is not usable."""
    if isinstance(backoff, Exponential) or (callable(backoff) and not isinstance(backoff, type)):
        return
    if isinstance(backoff, str | bytes) or not isinstance(backoff, Sequence):
        raise TypeError(
            "expected backoff to be a list of seconds, Exponential(...) or a callable "
            f"(exception, task_result) -> seconds or None, got {backoff!r}."
        )
    if not backoff:
        raise ValueError("expected backoff to list at least one delay in seconds, got [].")
    for given in backoff:
        delay = _in_seconds(given)
        if not is_number(delay) or not 0 <= delay < 1e10:
            raise ValueError(f"expected delays of 0 seconds or more in backoff, got {given!r}.")


def delay_after(
    backoff: Backoff,
    *,
    attempt: int,
    error: BaseException,
    make_result: Callable[[], Any],
) -> float | None:
    """Return the seconds to wait after failed attempt number *attempt*, None for no more.

    *make_result* builds the TaskResult that a callable backoff receives.
    """
    if isinstance(backoff, Exponential):
        delay: float | None = backoff.delay(attempt)
    elif callable(backoff):
        delay = seconds_or_none(backoff(error, make_result()), name="what backoff returned")
    else:
        delay = float(_in_seconds(backoff[min(attempt, len(backoff)) - 1]))
    return None if delay is None else min(delay, LONGEST_DELAY_SECONDS)
