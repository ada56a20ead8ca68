"""The pump: claims jobs and writes outcomes, both in the same round trip.

One loop, one connection. Every turn it looks at what has to be written and what could be
claimed, sends those statements together (they commit together, so a busy worker pays one
commit for a batch of outcomes and the next claim), and hands on what came back.

*Idle.* Looks become rarer (`pacing`). After the first few in vain the worker says that it is
listening, so that an enqueue notifies it, and looks once more; the saying has to be committed
before that look, or a job could fall between the two.

*Lost connections.* Outcomes are kept and sent again. A claim whose answer was lost may have
taken jobs that we never heard of; until a lease has passed, everything that the table says we
run and we do not hold is given back.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable

import psycopg
from psycopg.errors import DeadlockDetected, SerializationFailure

from django_pgjobs.exceptions import JobCancelled, LeaseLost
from django_pgjobs.queries import jobs, workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claimer import Claimer
from django_pgjobs.worker.completer import LINGER_SECONDS, Completer, resolution, statements
from django_pgjobs.worker.look import Look
from django_pgjobs.worker.outcome import Outcome, released
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.run import make_attempt
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turn import Rows, Turn

logger = get_logger(__name__)

# A claimed job that no slot began within this time goes back to the queue.
HOARD_SECONDS = 0.5
CONTROL_NOTE = "given back: something was paused or resumed"
# How often a worker with running jobs looks at their progress.
TICK_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 5.0
# How long a worker leaves the jobs of a task that it does not have to others; then one of them
# is met and logged again.
UNKNOWN_SECONDS = 60.0
# At most so long until a turn that another worker crossed is repeated.
CROSSED_SECONDS = 0.005


class Pump(Role):
    """Moves jobs between the table and the slots."""

    name = "pump"

    def __init__(
        self,
        state: WorkerState,
        connection: OwnConnection,
        claimer: Claimer,
        completer: Completer,
        *,
        dispatch: Callable[[list[Attempt]], None],
        take_back: Callable[[float | None], list[Attempt]],
        on_interrupted: Callable[[Attempt], None],
        on_limit: Callable[[str], None],
        on_crash: Callable[[str], None],
        look: Look,
    ) -> None:
        super().__init__(on_crash)
        self._state = state
        self._connection = connection
        self._claimer = claimer
        self._completer = completer
        self._dispatch = dispatch
        self._take_back = take_back
        self._on_interrupted = on_interrupted
        self._on_limit = on_limit
        self._turn = Turn(0)
        self._look_requested = False
        self._notified_queues: deque[str] = deque()
        self._look = look
        self._pace = look.pace
        self._tick_at = 0.0
        self._reconcile_until = 0.0
        self._failures = self._vain_scans = self._low_water = 0
        # A notified look claims from the heads at once; the scan after it need not.
        self._claims_first = self._heads_are_read = False
        self._cancels_requested = False
        self._asks_again = False
        # The worker id that the table shows as listening, if it is still ours.
        self._listening_as = 0
        self.can_listen = False
        self.missed_notification = False

    # What other threads say

    def add_outcome(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take over an outcome, and wake up unless it may wait for company."""
        self._completer.add(attempt, outcome)
        if len(self._completer) == 1 or self._claimer.buffered() <= self._low_water:
            self.wake()

    def notified(self, queue_name: str) -> None:
        """Look for jobs of a queue now."""
        self._notified_queues.append(queue_name)
        self.look_now()

    def look_now(self) -> None:
        """Look for jobs now."""
        self._look_requested = True
        self.wake()

    def look_for_cancelled(self) -> None:
        """Look now for running jobs that somebody asked to cancel."""
        self._cancels_requested = True
        self.wake()

    def claim_again(self) -> None:
        """Give back what nothing has begun to run and look for jobs, under other rules."""
        self._asks_again = True
        self.look_now()

    def give_up_all(self) -> None:
        """End and give back everything, because the lease is lost or about to be.

        Where the lease is lost already, no row is changed: the claims have risen.
        """
        for attempt in self._take_back(None):
            self._completer.add(attempt, released("given back: the lease was not renewed"))
        for attempt in list(self._state.held.values()):
            if attempt.interrupt(LeaseLost):
                self._on_interrupted(attempt)
        self.look_now()

    # The loop

    def run(self) -> None:
        while not (self.stop_requested and not self._state.held):
            try:
                worked = self._take_turn()
            except (SerializationFailure, DeadlockDetected):
                self._begin_again()
                continue
            except psycopg.Error as error:
                self._note_failure(error)
                if self.stop_requested and self._failures > 3:
                    break
                self.wait(
                    min(0.1 * 2 ** min(self._failures, 10), MAX_BACKOFF_SECONDS)
                    * random.uniform(0.5, 1)
                )
                continue
            if worked and self._failures:
                logger.info("worker=%s the database answers again", self._state.name)
                self._failures = 0
            if not worked:
                self.wait(self._seconds_to_sleep())
        self._connection.close()

    def _take_turn(self) -> bool:
        """Do what is due in one round trip; return False if nothing was."""
        turn = self._turn = Turn(self._state.worker_id)
        self._plan(turn, time.monotonic())
        if not turn.sends:
            return False
        sent_at = time.monotonic()
        answers = self._connection.round_trip(turn.sends)
        turn.note_time(time.monotonic() - sent_at, answers)
        if turn.scans:
            self._claimer.note_scan(turn.seconds)
        turn.receive(answers)
        self._completer.settle(turn.batch, turn.written)
        self._accept(turn)
        self._look.set_next(turn, time.monotonic())
        self.missed_notification = self._is_listening and turn.missed
        self._check_limits(turn)
        return True

    def _plan(self, turn: Turn, now: float) -> None:
        self._return_unbegun(now)
        self._low_water = self._claimer.low_water
        if self._look_requested:
            self._accept_requests()
        looks = bool(self._claimer.wanted()) and now >= self._next_look()
        # What is written stays locked until the commit: a look that waits travels alone.
        writes = len(self._completer) and not (looks and self._look.waits)
        if writes and self._flush_is_due() and self._plan_writes(turn):
            return
        wanted = self._claimer.wanted(waits=self._look.waits)
        if wanted and now >= self._next_look():
            if self.can_listen and not self._is_listening and self._pace.is_idle:
                self._set_listening(turn, True)
                return
            is_due = not self._claimer.has_lanes or self._claimer.head_scan_is_due()
            turn.scans = is_due and not self._claims_first
            from_heads = is_due and not self._heads_are_read
            self._claims_first, self._heads_are_read = False, self._claims_first
            if turn.scans and now < self._reconcile_until:
                self._plan_reconciliation(turn)
            is_notified = self.can_listen and self._is_listening
            self._look.plan(turn, wanted, from_heads=from_heads, is_notified=is_notified)
        if turn.freed:
            self._look.plan_wakeup(turn)
        if self._is_listening and self._is_busy(now, wanted):
            self._set_listening(turn, False)
        if self._state.held and (now >= self._tick_at or self._cancels_requested):
            self._plan_tick(turn, now)

    def _plan_writes(self, turn: Turn) -> bool:
        """Let outcomes travel with the turn; return whether nothing else may."""
        is_alone = self._completer.is_isolating
        turn.batch = self._completer.take()
        self._look.note_freed(turn, self._completer.already_stored)
        for send in statements(turn.batch, resolves=False):
            turn.add(send, lambda rows: turn.written.update(row[0] for row in rows))
        if is_alone and turn.batch:
            return True  # what waits for it is left to the sweep
        if turn.batch:
            turn.add(resolution(turn.batch), self._note_released)
        return False

    def _accept_requests(self) -> None:
        self._look_requested = False
        while self._notified_queues:
            self._claimer.note_queue(self._notified_queues.popleft())
            # The job that was told of comes first; where others are is asked after it.
            self._claims_first = self._claimer.has_lanes
        self._claimer.settled.end()
        self._claimer.request_head_scan()
        self._pace.look_now()

    def _plan_reconciliation(self, turn: Turn) -> None:
        held = [*self._state.held, *self._state.unwritable]
        turn.add(
            lambda cursor: jobs.send_release_unheld(
                cursor, worker_id=turn.worker_id, held_ids=held
            ),
            lambda rows: (
                logger.warning(
                    "worker=%s gave back %d jobs of a claim whose answer was lost",
                    self._state.name,
                    len(rows),
                )
                if rows
                else None
            ),
        )

    def _plan_tick(self, turn: Turn, now: float) -> None:
        self._tick_at = now + TICK_SECONDS
        reports = []
        for attempt in list(self._state.held.values()):
            report, attempt.progress = attempt.progress, ""
            if report:
                reports.append((attempt.id, attempt.claim, report))
        if reports:
            turn.add(lambda cursor: jobs.send_progress(cursor, reports), lambda rows: None)
        if self._cancels_requested or not self.can_listen:
            self._cancels_requested = False
            turn.add(
                lambda cursor: jobs.send_cancel_listing(cursor, worker_id=turn.worker_id),
                self._interrupt_cancelled,
            )

    # What came back

    def _note_released(self, rows: Rows) -> None:
        for (queue_name,) in rows:
            self.notified(queue_name)

    def _interrupt_cancelled(self, rows: Rows) -> None:
        for (job_id,) in rows:
            attempt = self._state.held.get(job_id)
            if attempt is not None and attempt.interrupt(JobCancelled):
                self._on_interrupted(attempt)

    def _accept(self, turn: Turn) -> None:
        """Hand claimed jobs to the slots; not if the lease was lost in the meantime."""
        if not turn.claimed:
            return
        self._vain_scans = 0
        attempts = [make_attempt(row, self._state.options) for row in turn.claimed]
        if not self._state.options.unknown_fails:
            until = time.monotonic() + UNKNOWN_SECONDS
            self._state.unknown_paths |= {a.row.task_path: until for a in attempts if not a.task}
        if turn.worker_id != self._state.worker_id:
            logger.warning(
                "worker=%s dropped %d jobs of a lost lease", self._state.name, len(attempts)
            )
            return
        for attempt in attempts:
            self._state.held[attempt.id] = attempt
        if self._asks_again:  # claimed before the rules changed, perhaps
            self._give_back(attempts, CONTROL_NOTE)
        else:
            self._dispatch(attempts)

    def _check_limits(self, turn: Turn) -> None:
        limit = self._state.options.max_jobs
        if limit is not None and self._state.finished_jobs >= limit:
            self._on_limit(f"{limit} jobs are done")
        if not self._state.options.drain or self._state.held:
            return
        if turn.lanes is None:
            self._claimer.request_head_scan()
            self._pace.look_by(self._claimer.scan_allowed_at)
        elif not turn.claims and not self._claimer.has_lanes and not turn.promoted:
            self._on_limit("nothing is left to run")
        elif turn.scans and turn.claims and not turn.promoted:
            self._check_vain_scan(turn)

    def _check_vain_scan(self, turn: Turn) -> None:
        """End a drain whose second scan in a row finds jobs and claims none: they have to wait."""
        is_in_turn = (turn.holds or not turn.walks) and not turn.falls_short
        self._vain_scans += is_in_turn and turn.token_wait is None
        if self._vain_scans > 1:
            self._on_limit("nothing is left that may run now")

    # Conditions

    @property
    def _is_listening(self) -> bool:
        return self._listening_as == self._state.worker_id

    def _flush_is_due(self) -> bool:
        is_low = self._claimer.buffered() <= self._low_water
        return is_low or self._completer.oldest_age() >= LINGER_SECONDS

    def _next_look(self) -> float:
        if self._claimer.has_lanes:
            return max(self._pace.look_at, self._claimer.look_allowed_at)
        return max(self._pace.look_at, self._claimer.scan_allowed_at)

    def _is_busy(self, now: float, wanted: int) -> bool:
        return self._pace.is_busy(now) or (not wanted and now >= self._tick_at)

    def _set_listening(self, turn: Turn, listening: bool) -> None:
        def note(rows: Rows) -> None:
            self._listening_as = turn.worker_id if listening else 0

        turn.add(
            lambda cursor: workers.set_listening(cursor, turn.worker_id, listening=listening), note
        )

    def _seconds_to_sleep(self) -> float | None:
        now = time.monotonic()
        waits = []
        if len(self._completer):
            waits.append(LINGER_SECONDS - self._completer.oldest_age())
        if self._claimer.wanted():
            waits.append(self._next_look() - now)
        if self._state.held:
            waits.append(self._tick_at - now)
        if self._claimer.buffered():
            waits.append(HOARD_SECONDS / 2)
        return max(0.0, min(waits)) if waits else None

    def _return_unbegun(self, now: float) -> None:
        if self._asks_again:
            self._asks_again = False
            self._give_back(self._take_back(None), CONTROL_NOTE)
        elif self._claimer.buffered():
            self._give_back(self._take_back(now - HOARD_SECONDS), "given back: no slot became free")

    def _give_back(self, attempts: list[Attempt], note: str) -> None:
        for attempt in attempts:
            self._completer.add(attempt, released(note))

    def _begin_again(self) -> None:
        """Repeat a turn that another worker crossed; it was rolled back as a whole.

        A row that was claimed, run and moved between our snapshot and our lock ends even a
        claim that skips locked rows in a serialization failure.
        """
        self._completer.put_back(self._turn.batch, is_sent=False)
        self._turn.batch = []
        self._look_requested = True
        self.wait(random.uniform(0, CROSSED_SECONDS))

    def _note_failure(self, error: psycopg.Error) -> None:
        turn = self._turn
        self._failures += 1
        level = logging.WARNING if self._failures == 1 else logging.INFO
        logger.log(level, "worker=%s statement failed: %s", self._state.name, str(error).strip())
        self._completer.put_back(turn.batch, is_sent=True)
        if turn.claims:
            self._reconcile_until = time.monotonic() + self._state.options.lease
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            self._connection.close_if_broken()
            self._listening_as = 0
        elif turn.batch:
            self._completer.isolate(was_alone=len(turn.batch) == len(turn.sends) == 1)
        turn.batch = []
        self._look_requested = True
