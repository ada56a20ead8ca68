"""The tasks, declared with django_pgjobs."""

from __future__ import annotations

import os
import time

from bench_app.models import Entry
from latency_file import write_first_line

from django_pgjobs import RateLimited, acquire, task

KEYS = 1_000


@task
def noop(number: int) -> None:
    pass


@task
def step(number: int) -> int:
    return number


@task
async def noop_async(number: int) -> None:
    pass


@task(concurrency_key=lambda number: f"limited:{number % KEYS}", concurrency_limit=5)
def limited(number: int) -> None:
    pass


@task(concurrency_key=lambda number: f"ordered:{number % KEYS}")
def ordered(number: int) -> None:
    pass


@task
def insert(number: int) -> None:
    Entry.objects.create(number=number)


@task(resets_session=False)
def insert_kept(number: int) -> None:
    Entry.objects.create(number=number)


@task
def record(number: int) -> None:
    now = time.time()
    write_first_line(number, now)


@task
def take(key: str, start: float, seconds: float) -> None:
    """Take tokens from *start* (seconds since the epoch) on, for so many seconds."""
    time.sleep(max(0.0, start - time.time()))
    end = time.monotonic() + seconds
    instants = []
    while (left := end - time.monotonic()) > 0:
        try:
            instants.append(acquire(key, timeout=left).granted_at.timestamp())
        except RateLimited:
            break
    line = "".join(f"{instant!r}\n" for instant in instants).encode()
    descriptor = os.open(os.environ["BENCH_GRANTS_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
