"""Async jobs: one event loop in one thread, many jobs at a time.

Django's ORM, called from async jobs, works in asgiref's one thread-sensitive thread, as it
does in an ASGI server without per-request threads; all async jobs share its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async

from django_pgjobs.context import enter_job
from django_pgjobs.exceptions import JobReleased
from django_pgjobs.signals import has_receivers, task_started
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running import calling
from django_pgjobs.worker.running.capacity import Capacity, SlotCallbacks
from django_pgjobs.worker.running.forks import watched
from django_pgjobs.worker.running.housekeeping import clean_connections, drop_dead_connections
from django_pgjobs.worker.running.loop_watch import LoopWatch
from django_pgjobs.worker.running.outcome import Outcome, success
from django_pgjobs.worker.running.traced import begin_trace, end_trace
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import Options
from django_pgjobs.worker.stillness import WAITS

logger = get_logger(__name__)


class AsyncSlots(Capacity):
    """Up to `options.async_concurrency` async jobs on an event loop of their own."""

    def __init__(self, options: Options, callbacks: SlotCallbacks) -> None:
        super().__init__(options.async_concurrency, options.claim_limit, is_async=True)
        self._options = options
        self._callbacks = callbacks
        self._loop = asyncio.new_event_loop()
        self._asked_to_end = asyncio.Event()
        self._thread: threading.Thread | None = None
        # The attempt of each asyncio task: one task has the bookkeeping, another one the body.
        self._attempts: dict[asyncio.Task[Any], Attempt] = {}
        self._watch = LoopWatch()

    def submit(self, attempts: list[Attempt]) -> None:
        """Queue attempts for the loop, in order."""
        self.buffer.extend(attempts)
        self._ensure_started()
        self._watch.ask()
        self._call_soon(self._begin)

    def wanted(self, *, elsewhere: int = 0, waits: bool = False) -> int:
        """Return how many jobs to claim now: none for a loop that stands still."""
        if self._watch.is_blocked:
            return 0
        return super().wanted(elsewhere=elsewhere, waits=waits)

    @property
    def mark(self) -> float:
        """A mark that stays the same while a job keeps the loop from beginning others."""
        return self._watch.mark

    def look(self) -> None:
        """Ask whether the loop moves, and log what has blocked it for long; from any thread."""
        thread_id = self._thread and self._thread.ident
        if thread_id and (self.running or self.mark != WAITS):
            if self._watch.look(self._attempt_on_loop()):
                self._call_soon(self._watch.note_move)
            self._watch.tell(thread_id)

    def obstacle_of(self, attempt: Attempt) -> Attempt | None:
        """Return whose job keeps an interrupted one from ending; None if nobody knows.

        It is its own once the loop has passed the interruption on, unless another one has had the
        loop for most of the grace since.
        """
        tasks = [task for task, each in list(self._attempts.items()) if each is attempt]
        on_loop = self._attempt_on_loop()
        seconds = self._watch.held_for(on_loop)
        if any(task.cancelling() for task in tasks):
            return on_loop if seconds > self._options.timeout_grace / 2 else attempt
        return on_loop if seconds > 0 else None

    def _attempt_on_loop(self) -> Attempt | None:
        task = asyncio.current_task(self._loop)
        return self._attempts.get(task) if task else None

    def stop(self) -> None:
        """End the loop once its jobs have ended."""
        if self._thread is None:
            self._loop.close()
        else:
            self._call_soon(self._asked_to_end.set)

    def join(self, timeout: float) -> bool:
        """Wait for the loop's thread; return whether it ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _ensure_started(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_loop, name="pgjobs-event-loop", daemon=True
            )
            self._thread.start()

    def _call_soon(self, function: Callable[[], object]) -> None:
        """Have the loop call a function, unless it has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        # A loop that crashed ends as orderly as one that is stopped, if it can.
        for work in (self._asked_to_end.wait, self._end_all):
            try:
                self._loop.run_until_complete(work())
            except BaseException as error:
                self._note_crash(error)
        self._loop.close()

    async def _end_all(self) -> None:
        """Begin no more; let what runs end, and what jobs have left behind on the loop."""
        self._asked_to_end.set()
        for attempt in list(self.running):
            attempt.interrupt(JobReleased)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left - self._attempts.keys():
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _note_crash(self, error: BaseException) -> None:
        self._callbacks.on_crash("event loop")
        logger.critical("the event loop crashed; the worker ends", exc_info=error)

    def _begin(self) -> None:
        """Begin submitted jobs; tell the pump if it took this loop for blocked."""
        if self._watch.answer():
            self._callbacks.on_empty()
        self._fill()

    def _fill(self) -> None:
        while self.free > 0 and not self._asked_to_end.is_set():
            # Or the pump would find room for one more in between.
            self.beginning = 1
            attempt = self.buffer.take_first()
            if attempt is not None:
                self.note_begin(attempt)
            self.beginning = 0
            if attempt is None:
                return
            task = self._loop.create_task(self._run(attempt))
            self._note_task(task, attempt)
            if not self.buffer:
                self._callbacks.on_empty()

    def _note_task(self, task: asyncio.Task[Any], attempt: Attempt) -> None:
        self._attempts[task] = attempt
        task.add_done_callback(self._attempts.pop)

    async def _run(self, attempt: Attempt) -> None:
        try:
            self._callbacks.on_start(attempt)
            if len(self.running) == 1:
                await sync_to_async(drop_dead_connections, thread_sensitive=True)()
            outcome = await self._outcome_of(attempt)
            if len(self.running) == 1:
                await sync_to_async(clean_connections, thread_sensitive=True)(attempt)
            self.running.discard(attempt)
            self.note_duration(outcome.duration)
            self._callbacks.on_done(attempt, outcome)
            self._fill()
        except Exception as error:
            # asyncio would keep it to itself, and the job would never end.
            self._note_crash(error)

    async def _outcome_of(self, attempt: Attempt) -> Outcome:
        trace = begin_trace(attempt)
        attempt.started_at = time.monotonic()
        try:
            call = await self._prepare(attempt)
            value = await self._call(attempt, call)
            outcome = success(value, self._options.max_payload_bytes)
        except BaseException as error:
            if self._loop.is_closed():
                raise  # Nobody asks any more what the job came to: it has not failed.
            # In a thread, because a backoff of the project's own may read the database.
            outcome = await sync_to_async(_failure, thread_sensitive=True)(
                attempt, error, self._options
            )
        attempt.disarm()
        calling.settle(attempt, outcome)
        end_trace(trace, outcome)
        return outcome

    async def _prepare(self, attempt: Attempt) -> calling.TaskCall:
        task = attempt.task
        needs_row = task is not None and task.takes_context and attempt.row.detail is None
        if attempt.batch_id is not None:
            needs_row = needs_row or calling.reads_results(attempt)
        if has_receivers(task_started) or needs_row:
            prepared = await sync_to_async(calling.prepare, thread_sensitive=True)(attempt)
            await sync_to_async(calling.announce_start, thread_sensitive=True)(attempt)
            return prepared
        return calling.prepare(attempt)

    async def _call(self, attempt: Attempt, call: calling.TaskCall) -> Any:
        def cancel_body() -> None:  # On the loop, which has made the body by then.
            body.cancel()

        # Before there is a body: one that was interrupted already would run on by itself.
        attempt.arm(cancel_async=lambda: self._call_soon(cancel_body))
        # A task of its own, so that a cancellation ends the job and never its bookkeeping.
        body = self._loop.create_task(_body(attempt, call))
        self._note_task(body, attempt)
        await asyncio.wait([body])
        if body.cancelled():
            raise attempt.interrupted_by or asyncio.CancelledError
        value, error = body.result()
        if isinstance(error, asyncio.CancelledError) and attempt.interrupted_by is not None:
            raise attempt.interrupted_by from error
        if error is not None:
            raise error
        return value


def _failure(attempt: Attempt, error: BaseException, options: Options) -> Outcome:
    # If jobs always overlap, nobody else finds out that the connection which they share is dead.
    drop_dead_connections()
    return calling.failure(attempt, error, options)


async def _body(attempt: Attempt, call: calling.TaskCall) -> tuple[Any, BaseException | None]:
    # asyncio would end its whole loop on the SystemExit or KeyboardInterrupt of one task.
    enter_job(attempt)
    value = _value_of(call)
    attempt.enter_loop(value)
    try:
        return await watched(value, attempt.process), None
    except BaseException as error:
        return None, error


async def _value_of(call: calling.TaskCall) -> Any:
    return await call.task.func(*call.args, **call.kwargs)
