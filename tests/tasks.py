"""Tasks for the tests: small, general, and observable from another process."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from typing import Any

from django_pgjobs import current_batch, current_job, task
from tests.models import Effect


class Mishap(Exception):
    """What the failing tasks raise."""


def append_line(path: str, text: str) -> None:
    """Append one line to a file; lines of several processes do not mix (O_APPEND)."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(handle, f"{text}\n".encode())
    finally:
        os.close(handle)


@task
def add(a: Any, b: Any) -> Any:
    """Return the sum."""
    return a + b


@task
async def add_async(a: Any, b: Any) -> Any:
    """Return the sum, on the event loop."""
    await asyncio.sleep(0)
    return a + b


@task
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    """Return all arguments."""
    return [list(args), kwargs]


@task(max_attempts=3, backoff=[0])
def fail(message: str = "on purpose") -> None:
    """Fail every time: three attempts without a pause."""
    raise Mishap(message)


@task(max_attempts=3, backoff=[0])
async def fail_async(message: str = "on purpose") -> None:
    """Fail every time, on the event loop."""
    raise Mishap(message)


@task(max_attempts=1)
def fail_once(message: str = "on purpose") -> None:
    """Fail at the only attempt."""
    raise Mishap(message)


@task
def sleep_for(seconds: float) -> None:
    """Sleep in short steps, so that an exception can interrupt it."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.01))


@task
def touch(path: str, text: str) -> None:
    """Append a line to a file."""
    append_line(path, text)


@task
async def touch_async(path: str, text: str) -> None:
    """Append a line to a file, from the event loop."""
    append_line(path, text)


@task(takes_context=True)
def describe_context(context: Any, value: Any = None) -> dict[str, Any]:
    """Return what the context says."""
    return {"attempt": context.attempt, "id": context.task_result.id, "value": value}


@task
def describe_job() -> dict[str, Any]:
    """Return what `current_job()` says."""
    job = current_job()
    return {
        "id": str(job.id),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "is_cancelled": job.is_cancelled,
    }


@task
def record(key: str) -> None:
    """Insert an Effect, at least once per job."""
    job = current_job()
    Effect.objects.create(key=key, job_id=int(job.id), attempt=job.attempt)


@task(atomic=True, backoff=[0])
def record_atomic(key: str, seconds: float = 0.0) -> None:
    """Insert an Effect in the transaction that finishes the job, then take *seconds* longer."""
    job = current_job()
    Effect.objects.create(key=key, job_id=int(job.id), attempt=job.attempt)
    sleep_for.func(seconds)


@task(atomic=True, max_attempts=2, backoff=[0])
def record_and_fail(key: str) -> None:
    """Insert an Effect and fail: nothing of it may stay."""
    record_atomic.func(key)
    raise Mishap(key)


@task
def crawl(depth: int) -> None:
    """Add one more of the same to the own batch."""
    if depth:
        current_batch().add(crawl.s(depth - 1))


@task
def visit(page: int) -> int:
    """Add what a page links to, unless its batch had it."""
    links = [visit.s(page // 2), visit.s(max(0, page // 2 - 1))]
    current_batch().add(*links, dedupe_key="{page}", on_conflict="return")
    return page


@task
def split_order(count: int) -> None:
    """Open a part of the own batch."""
    part = current_batch().batch("order")
    part.add_many(add, [(number, number) for number in range(count)])
    part.seal()


@task
def add_none(value: None) -> None:
    """Take the result of a task that returns nothing."""


@task(max_attempts=2, backoff=[0])
def forget_part() -> None:
    """Open a part, add to it and fail; the second attempt finds it."""
    part = current_batch().batch("forgotten")
    part.add(add.s(1, 1))
    if current_job().attempt == 1:
        raise Mishap("in between")


@task(max_attempts=2, backoff=[0])
def plan_part() -> None:
    """Open a part with followers, callbacks and a part of its own; fail before it adds to it."""
    part = current_batch().batch("planned")
    part.each(echo.s()).then(echo.s("then"))
    part.on_complete(echo.s())
    inner = part.batch("inner")
    if current_job().attempt == 1:
        raise Mishap("in between")
    inner.add(add.s(2, 2))
    inner.seal()
    part.add(add.s(1, 1))
    part.seal()


@task
def listed(number: int) -> list[list[int]]:
    """Return a list of pairs."""
    return [[number, place] for place in range(12)]


@task
def hide_one(count: int) -> list[int | None]:
    """Return a long list of nothing between two numbers."""
    return [7, *[None] * count, 8]


@task(max_attempts=1)
def wait_for_own_batch() -> None:
    """Wait for what waits for this job."""
    current_batch().wait(timeout=60)


@task
def open_two_parts() -> None:
    """Open two parts of the own batch, without names."""
    current_batch().batch().seal()
    current_batch().batch().seal()


@task(concurrency_key="keyed:{number}")
def keyed(number: int) -> int:
    """Return the number."""
    return number


# What `seen` was called with, in order.
SEEN: list[Any] = []


@task
def seen(*args: Any) -> list[Any]:
    """Remember the call, and return its arguments."""
    SEEN.append(args)
    return list(args)


@task(max_attempts=1)
def plan_and_fail_once() -> None:
    """Open a part, add to it, and fail; the next time add one more, and seal it."""
    part = current_batch().batch("items")
    part.add(add.s(1, 1), dedupe_key="{a}", on_conflict="return")
    SEEN.append("planned")
    if len(SEEN) == 1:
        raise Mishap("the first time")
    part.add(add.s(2, 2))
    part.seal()


@task
def count_frozen() -> int:
    """Return how many objects the garbage collector leaves alone."""
    return gc.get_freeze_count()
