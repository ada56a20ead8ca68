"""The threads in which an event loop lets handlers run: few, and kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from django.db import close_old_connections

from django_pgjobs.conf import get_conf
from django_pgjobs.http.pool import PATIENCE_SECONDS
from django_pgjobs.http.problems import unavailable

T = TypeVar("T")


@cache
def _threads() -> ThreadPoolExecutor:
    """As many as there are connections."""
    return ThreadPoolExecutor(get_conf().HTTP_MAX_CONNECTIONS, thread_name_prefix="pgjobs-http")


# A process that was forked has none.
os.register_at_fork(after_in_child=_threads.cache_clear)


async def in_thread(function: Callable[[], T]) -> T:
    """Call what uses connections, away from the event loop.

    Raise Problem (503) if no thread is free for as long as a request waits for a connection.
    """
    # A call that is given up stays in line until a thread is free, but must not keep its request.
    work = [function]
    del function
    called = _threads().submit(_called, work)
    # This has no effect on what has begun.
    patience = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, called.cancel)
    try:
        return await asyncio.wrap_future(called)
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) and task.cancelling():
            raise
        raise unavailable("All threads are in use.") from None
    finally:
        patience.cancel()
        if called.cancelled():
            work.clear()


def _called(work: list[Callable[[], T]]) -> T:
    # The results of batches are read, and receivers of signals read, by Django's connections: they
    # stay open for as long as those of Django's own requests.
    close_old_connections()
    try:
        return work.pop()()
    finally:
        close_old_connections()
