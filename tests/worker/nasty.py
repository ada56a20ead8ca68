"""Tasks that end as badly as Python allows, and return what nobody can store."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import decimal
import sys
from collections.abc import Callable
from typing import Any

from django_pgjobs import Retry, Snooze, task


class BadStr(Exception):
    """An exception whose str() raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class BadRepr(Exception):
    """An exception whose repr() raises, and exits at that."""

    def __repr__(self) -> str:
        sys.exit("no repr")

    __str__ = __repr__


class NotText(Exception):
    """An exception whose str() is no string."""

    def __str__(self) -> str:
        return 1  # type: ignore[return-value]


class BadModule(Exception):
    """An exception that says that it lives in a module which is none."""


BadModule.__module__ = None  # type: ignore[assignment]


class BadTraceback(Exception):
    """An exception that cannot be formatted: its cause is no exception."""

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no cause")


class NeedsArguments(Exception):
    """An exception that no pickle and no copy can make again."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(lambda: first)


class EqualToEverything(Exception):
    """An exception that compares badly."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


class RetryWithoutInit(Retry):
    """A Retry that never said when."""

    def __init__(self) -> None:
        pass


class RetryWithBadCause(Retry):
    """A Retry that looks bad from where it comes."""

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no cause")


class RetryFromNothing(Retry):
    """A Retry whose cause is no exception."""

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        return "no exception"


class SnoozeWithoutInit(Snooze):
    """A Snooze that never said for how long."""

    def __init__(self) -> None:
        pass


class SnoozeWithBadStr(Snooze):
    """A Snooze whose str() exits."""

    def __str__(self) -> str:
        sys.exit("no text")


def make_deep_chain() -> Exception:
    """Return an exception with 3,000 causes."""
    error = Exception("first")
    for number in range(3_000):
        following = Exception(str(number))
        following.__cause__ = error
        error = following
    return error


def make_cycle() -> Exception:
    """Return an exception that is its own cause."""
    error = Exception("cycle")
    error.__context__ = ValueError("other")
    error.__context__.__context__ = error
    return error


def retry_from(cause: BaseException) -> Retry:
    """Return what `raise Retry() from cause` raises."""
    retry = Retry()
    retry.__cause__ = cause
    return retry


Unreachable = type("Unreachable", (KeyError,), {})

ERRORS: dict[str, Callable[[], BaseException]] = {
    "BaseException": lambda: BaseException("base"),
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "StopIteration": lambda: StopIteration(1),
    "StopAsyncIteration": StopAsyncIteration,
    "CancelledError": asyncio.CancelledError,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "ExceptionGroup": lambda: ExceptionGroup("many", [ValueError("a"), BadStr()]),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("many", [SystemExit(1)]),
    "str() raises": BadStr,
    "repr() exits": BadRepr,
    "str() is a number": NotText,
    "no module": BadModule,
    "cause raises": BadTraceback,
    "cannot be pickled": lambda: NeedsArguments(1, 2),
    "cannot be compared": EqualToEverything,
    "3,000 causes": make_deep_chain,
    "its own cause": make_cycle,
    "class of no module": lambda: Unreachable("x"),
    "10 MB of message": lambda: Exception("x" * 10_000_000),
    "NUL": lambda: Exception("a\0b"),
    "lone surrogate": lambda: Exception("a\ud800b"),
    "bytes": lambda: Exception(b"\xff\0"),
    "control characters": lambda: Exception("a\n2026-01-01 forged\x1b[31m\u2028"),
    "empty": Exception,
    "Retry without init": RetryWithoutInit,
    "Retry whose cause raises": RetryWithBadCause,
    "Retry from no exception": RetryFromNothing,
    "Retry from str() raises": lambda: retry_from(BadStr()),
    "Snooze without init": SnoozeWithoutInit,
    "Snooze whose str() exits": lambda: SnoozeWithBadStr(5),
}


def make_cyclic_list() -> list[Any]:
    """Return a list that holds itself."""
    made: list[Any] = []
    made.append(made)
    return made


def make_deep_list(levels: int) -> list[Any]:
    """Return nested lists."""
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


RESULTS: dict[str, Callable[[], Any]] = {
    "NaN": lambda: float("nan"),
    "infinity in a list": lambda: [1, float("-inf")],
    "NUL": lambda: "a\0b",
    "NUL in a key": lambda: {"a\0b": 1},
    "lone surrogate": lambda: ["a\ud800b"],
    "object": object,
    "set": lambda: {1, 2},
    "bytes": lambda: b"\xff",
    "date": lambda: datetime.date(2026, 1, 1),
    "Decimal": lambda: decimal.Decimal("1.5"),
    "lambda": lambda: lambda: None,
    "exception": lambda: ValueError("x"),
    "generator": lambda: (number for number in range(3)),
    "101 levels": lambda: make_deep_list(101),
    "100,000 levels": lambda: make_deep_list(100_000),
    "a list that holds itself": make_cyclic_list,
    "300 kB": lambda: "x" * 300_000,
    "a number of 5,000 digits": lambda: 10**5_000,
    "key of a tuple": lambda: {(1, 2): 3},
}


@task(max_attempts=1)
def end_with(name: str) -> None:
    """Raise one of ERRORS."""
    raise ERRORS[name]()


@task(max_attempts=1)
async def end_with_async(name: str) -> None:
    """Raise one of ERRORS on the event loop."""
    raise ERRORS[name]()


@task(max_attempts=1)
def give(name: str) -> Any:
    """Return one of RESULTS."""
    return RESULTS[name]()


@task(max_attempts=1)
async def give_async(name: str) -> Any:
    """Return one of RESULTS on the event loop."""
    return RESULTS[name]()


@task(max_attempts=1)
def recurse() -> None:
    """Call itself until Python has had enough."""
    recurse.func()


@task
def give_good(value: Any) -> Any:
    """Return what can be stored."""
    return value


async def _exit() -> None:
    await asyncio.sleep(0)
    sys.exit("the loop")


async def _exit_when_cancelled() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        sys.exit("the loop, again")


_behind: set[asyncio.Task[None]] = set()


@task
async def end_the_loop() -> None:
    """Leave behind what ends the loop."""
    _behind.add(asyncio.get_running_loop().create_task(_exit()))


@task
async def end_the_loop_twice() -> None:
    """Do that, and end it again while it is being ended; wait for ever, whatever comes."""
    _behind.add(asyncio.get_running_loop().create_task(_exit_when_cancelled()))
    await end_the_loop.func()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
