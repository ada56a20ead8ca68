"""The threads in which an event loop lets handlers of workers run: few, and kept.

The thread that Django has for each request, to call its signals, takes as much of the processor;
but there are as many of those as requests.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from django_pgjobs.conf import get_conf
from django_pgjobs.http.requests import ApiRequest, Reply
from django_pgjobs.worker.running.housekeeping import close_connections

T = TypeVar("T")


class Threads:
    """The threads in which an event loop lets statements run."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Have none, as a process that was forked."""
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def get(self) -> ThreadPoolExecutor:
        """Return them; as many as there are connections."""
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    get_conf().HTTP_MAX_CONNECTIONS, thread_name_prefix="pgjobs-http"
                )
            return self._executor


threads = Threads()
os.register_at_fork(after_in_child=threads.begin_anew)


async def in_thread(function: Callable[[], T]) -> T:
    """Call what uses connections, away from the event loop."""
    return await asyncio.get_running_loop().run_in_executor(threads.get(), _called, function)


def _called(function: Callable[[], T]) -> T:
    try:
        return function()
    finally:
        # The results of batches are read, and receivers of signals read, by Django's connections.
        close_connections()


def in_loop_of(handler: Callable[..., Reply]) -> Callable[..., Awaitable[Reply]]:
    """Return the async twin of a handler."""

    async def in_loop(request: ApiRequest, **path: Any) -> Reply:
        return await in_thread(partial(handler, request, **path))

    return in_loop
