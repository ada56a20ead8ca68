"""Tasks that take rate limits; a worker knows them if its TASK_MODULES name this module."""

from __future__ import annotations

import os
import time

from django_pgjobs import Grant, RateLimited, aacquire, acquire, task
from tests.process.tasks import write


def note(folder: str, grant: Grant) -> None:
    """Write "grant <instant of the turn> <instant of now> <process>" to the journal."""
    now = time.time()
    write(folder, f"grant {grant.granted_at.isoformat()} {now!r} {os.getpid()}")


@task
def take_for(folder: str, key: str, seconds: float) -> int:
    """Take tokens for so many seconds, one after the other; return how many."""
    end = time.monotonic() + seconds
    taken = 0
    while (left := end - time.monotonic()) > 0:
        try:
            note(folder, acquire(key, timeout=left))
        except RateLimited:
            break
        taken += 1
    write(folder, f"done {os.getpid()}")
    return taken


@task
async def take_async(folder: str, key: str) -> None:
    """Take one token on the event loop."""
    note(folder, await aacquire(key))


@task
def wait_for_turn(folder: str, key: str) -> None:
    """Write "start" and take one token."""
    write(folder, "start")
    note(folder, acquire(key))


@task(timeout=30, max_attempts=1)
def wait_with_timeout(folder: str, key: str) -> None:
    """Do as `wait_for_turn`, with less time than it takes."""
    wait_for_turn.func(folder, key)
