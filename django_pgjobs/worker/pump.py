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

*Rows that are locked or refused* delay themselves and nothing else (`sending`).

*Planning changes nothing.* What the worker knows changes with the answers, so a turn that fails
is planned again and nothing that was asked for is lost.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import psycopg

from django_pgjobs.exceptions import LeaseLost
from django_pgjobs.queries import workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claimer import Claimer
from django_pgjobs.worker.completer import LINGER_SECONDS, Completer, Entry, resolution, writings
from django_pgjobs.worker.look import Look
from django_pgjobs.worker.outcome import AT_SHUTDOWN, Outcome, released
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.run import make_attempt
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.sending import Sender
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.tick import Tick
from django_pgjobs.worker.turn import Rows, Turn
from django_pgjobs.worker.unheld import plan_return
from django_pgjobs.worker.writing import plan_careful_writes, write_apart

logger = get_logger(__name__)

# A claimed job that no slot began within this time goes back to the queue.
HOARD_SECONDS = 0.5
CONTROL_NOTE = "given back: something was paused or resumed"
MAX_BACKOFF_SECONDS = 5.0
# How long a worker leaves the jobs of a task that it does not have to others; then one of them
# is met and logged again.
UNKNOWN_SECONDS = 60.0
# At most so long until a turn that another worker crossed is repeated.
CROSSED_SECONDS = 0.005
# After so long a worker whose own row was locked says again whether it listens.
LISTEN_AGAIN_SECONDS = 1.0


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
        self._tick = Tick(state, connection, on_interrupted)
        self._on_limit = on_limit
        self._turn = Turn(0)
        self._look_requested = False
        self._notified_queues: deque[str] = deque()
        self._look = look
        self._pace = look.pace
        self._reconcile_until = 0.0
        self._sender = Sender(connection, state.name)
        self._failures = self._vain_scans = self._low_water = 0
        # A notified look claims from the heads at once; the scan after it need not.
        self._claims_first = self._heads_are_read = False
        self._asks_again = False
        # The worker id that the table shows as listening, if it is still ours.
        self._listening_as = 0
        self._listen_at = 0.0
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
        self._tick.look_for_cancelled()
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
        while not (self.stop_requested and self._completer.is_all_aside):
            try:
                worked = self._take_turn()
            except psycopg.Error as error:
                if trouble_of(error) is Trouble.CROSSED:
                    self._look_requested = True
                    self.wait(random.uniform(0, CROSSED_SECONDS))
                    continue
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
        if not turn.parts:
            return False
        try:
            self._sender.send(turn)
        except psycopg.Error as error:
            is_sent = trouble_of(error) is Trouble.LOST
            self._completer.put_back(turn.unanswered, is_sent=is_sent)
            raise
        finally:
            # A turn in parts may have claimed jobs before its connection broke.
            self._accept(turn)
        self._note_answers(turn)
        return True

    def _note_answers(self, turn: Turn) -> None:
        if turn.scans:
            self._claimer.note_scan(turn.seconds)
        if turn.looks:
            self._claims_first, self._heads_are_read = False, self._claims_first
        self._look.set_next(turn, time.monotonic())
        self.missed_notification = self._is_listening and turn.missed
        self._check_limits(turn)

    def _plan(self, turn: Turn, now: float) -> None:
        self._return_unbegun(now)
        self._low_water = self._claimer.low_water
        if self._look_requested:
            self._accept_requests()
        looks = bool(self._claimer.wanted()) and now >= self._next_look()
        # What is written stays locked until the commit: a look that waits travels alone.
        if not (looks and self._look.waits):
            self._plan_writes(turn)
        wanted = self._claimer.wanted(waits=self._look.waits)
        if wanted and now >= self._next_look():
            if self._wants_to_listen(now):
                self._set_listening(turn, True)
                return
            self._plan_look(turn, wanted, now)
        self._look.plan_wakeup(turn)
        if self._is_listening and now >= self._listen_at and self._is_busy(now, wanted):
            self._set_listening(turn, False)
        if self._tick.is_due(now):
            self._tick.plan(turn, now, can_listen=self.can_listen)

    def _plan_look(self, turn: Turn, wanted: int, now: float) -> None:
        is_due = not self._claimer.has_lanes or self._claimer.head_scan_is_due()
        turn.scans = is_due and not self._claims_first
        if turn.scans and now < self._reconcile_until:
            plan_return(turn, self._connection, self._state)
        self._look.plan(turn, wanted, from_heads=is_due and not self._heads_are_read)

    def _plan_writes(self, turn: Turn) -> None:
        """Let outcomes travel with the turn, and what waits for the jobs they finish."""
        fresh: list[Entry] = []
        if len(self._completer) and self._flush_is_due():
            fresh = self._completer.take()
            self._look.note_freed([*self._completer.already_stored, *(a for a, _ in fresh)])
        turn.batch = fresh
        if fresh:
            part = turn.begin(
                lambda error: write_apart(turn, fresh, self._connection, self._completer)
            )
            for send, entries in writings(fresh):
                part.add(send, partial(self._settle, turn, entries))
        aside = self._completer.take_due()
        if aside:
            self._look.note_freed([attempt for attempt, _ in aside])
            plan_careful_writes(turn, aside, self._connection, self._completer)
        if fresh or aside:
            turn.add(resolution([*fresh, *aside]), self._note_released)

    def _settle(self, turn: Turn, entries: Sequence[Entry], rows: Rows) -> None:
        turn.answered.update(attempt.id for attempt, _ in entries)
        self._completer.settle(entries, {row[0] for row in rows})

    def _accept_requests(self) -> None:
        self._look_requested = False
        while self._notified_queues:
            self._claimer.note_queue(self._notified_queues.popleft())
            # The job that was told of comes first; where others are is asked after it.
            self._claims_first = self._claimer.has_lanes
        self._claimer.request_head_scan()
        self._pace.look_now()

    # What came back

    def _note_released(self, rows: Rows) -> None:
        for (queue_name,) in rows:
            self.notified(queue_name)

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
        if self.stop_requested:  # the slots may have ended
            self._give_back(attempts, AT_SHUTDOWN)
        elif self._asks_again:  # claimed before the rules changed, perhaps
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
        is_in_turn = turn.holds or not turn.walks
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
        return self._pace.is_busy(now) or (not wanted and now >= self._tick.due)

    def _wants_to_listen(self, now: float) -> bool:
        is_due = self._pace.is_idle and now >= self._listen_at
        return is_due and self.can_listen and not self._is_listening

    def _set_listening(self, turn: Turn, listening: bool) -> None:
        def note(rows: Rows) -> None:
            if rows:
                self._listening_as = turn.worker_id if listening else 0
            else:
                try_later()

        def try_later(error: psycopg.Error | None = None) -> None:
            # Somebody holds the worker's row, or it cannot be changed.
            self._listen_at = time.monotonic() + LISTEN_AGAIN_SECONDS
            self._pace.look_by(self._listen_at)

        turn.begin(try_later).add(
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
            waits.append(self._tick.due - now)
        due = self._completer.next_due()
        if due is not None:
            waits.append(due - now)
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

    def _note_failure(self, error: psycopg.Error) -> None:
        self._failures += 1
        level = logging.WARNING if self._failures == 1 else logging.INFO
        logger.log(level, "worker=%s statement failed: %s", self._state.name, str(error).strip())
        if self._turn.claims:
            self._reconcile_until = time.monotonic() + self._state.options.lease
        if trouble_of(error) is Trouble.LOST:
            self._connection.close()
            self._listening_as = 0
        self._look_requested = True
