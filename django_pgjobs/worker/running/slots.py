"""Slots: the threads that run jobs, and the buffer of claimed jobs in front of them.

A thread that takes a job while more are waiting wakes one other thread, so a batch of short
jobs is run by as few threads as keep up with it, and blocking jobs spread over all.
"""

from __future__ import annotations

import threading
import time

from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.calling import needs_reset, run_in_thread
from django_pgjobs.worker.running.capacity import Capacity, SlotCallbacks
from django_pgjobs.worker.running.housekeeping import (
    clean_connections,
    close_connections,
    drop_dead_connections,
)
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import Options

logger = get_logger(__name__)


class Slots(Capacity):
    """Up to `options.concurrency` threads, started when they are first needed."""

    def __init__(self, options: Options, callbacks: SlotCallbacks) -> None:
        super().__init__(options.concurrency, options.claim_limit, is_async=False)
        self._options = options
        self._callbacks = callbacks
        self._ready = threading.Condition()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._stopping = False

    def submit(self, attempts: list[Attempt]) -> None:
        """Queue attempts for the threads, in order."""
        self.buffer.extend(attempts)
        was_idle = bool(self._idle)
        self._wake_one()
        if was_idle:
            # Hand over the interpreter's lock: the thread would begin when this one waits next.
            time.sleep(0)

    def stop(self) -> None:
        """Let idle threads end; busy ones end after their job."""
        with self._ready:
            self._stopping = True
            self._ready.notify_all()

    def join(self, timeout: float) -> bool:
        """Wait for the threads; return whether all of them ended."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _wake_one(self) -> None:
        with self._ready:
            if self._idle:
                self._ready.notify()
            elif len(self._threads) < self.most:
                self._start_thread()

    def _start_thread(self) -> None:
        name = f"pgjobs-slot-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._loop, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if not self._threads:
                raise
            # No more threads can be started: go on with fewer.
            self.most = len(self._threads)
            logger.error("no more threads: goes on with %d slots: %s", self.most, error)
        else:
            self._threads.append(thread)

    def _loop(self) -> None:
        try:
            while (attempt := self._next()) is not None:
                if self.free > 0:
                    if self.buffer:
                        self._wake_one()
                    else:
                        self._callbacks.on_empty()
                self._run(attempt)
            close_connections()
        except BaseException:
            self._callbacks.on_crash("slot")
            logger.critical("a slot crashed; the worker ends", exc_info=True)

    def _next(self) -> Attempt | None:
        while True:
            attempt = self.buffer.take_first()
            if attempt is not None:
                self.note_begin(attempt)
                return attempt
            with self._ready:
                if self._stopping:
                    return None
                if not self.buffer:
                    self._idle += 1
                    self._ready.wait()
                    self._idle -= 1

    def _run(self, attempt: Attempt) -> None:
        try:
            self._callbacks.on_start(attempt)
            drop_dead_connections()
            outcome = run_in_thread(attempt, self._options)
            clean_connections(attempt, resets=needs_reset(attempt, outcome))
        finally:
            self.running.discard(attempt)
        self.note_duration(outcome.duration)
        self._callbacks.on_done(attempt, outcome)
        # This frame is in the traceback of its exception: a circle.
        del outcome
