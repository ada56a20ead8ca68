"""The threads in which an event loop lets handlers of workers run: few, and kept."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from django_pgjobs.conf import get_conf
from django_pgjobs.worker.running.housekeeping import close_connections

T = TypeVar("T")


@cache
def _threads() -> ThreadPoolExecutor:
    """As many as there are connections."""
    return ThreadPoolExecutor(get_conf().HTTP_MAX_CONNECTIONS, thread_name_prefix="pgjobs-http")


# A process that was forked has none.
os.register_at_fork(after_in_child=_threads.cache_clear)


async def in_thread(function: Callable[[], T]) -> T:
    """Call what uses connections, away from the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), _called, function)


def _called(function: Callable[[], T]) -> T:
    try:
        return function()
    finally:
        # The results of batches are read, and receivers of signals read, by Django's connections.
        close_connections()
