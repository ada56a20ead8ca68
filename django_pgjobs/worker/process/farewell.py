"""The last steps of a worker in the database, on a connection that no role uses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import psycopg

from django_pgjobs.queries import workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.outcome_statements import writings
from django_pgjobs.worker.claiming.writing import release
from django_pgjobs.worker.running.calling import settle
from django_pgjobs.worker.running.job_log import log_outcome
from django_pgjobs.worker.running.outcome import (
    AT_SHUTDOWN,
    Entry,
    Kind,
    Outcome,
    interrupted,
    left_running,
    released,
)
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.careful import by_halves

logger = get_logger(__name__)

Step = Callable[[OwnConnection], object]


class Farewell:
    """What a worker does with the jobs that it still owns at its end.

    One that no slot has begun goes back, as if it had never been claimed. One that runs goes
    back as well if somebody wanted the worker to end. If the worker ends because of what it
    ran (*loses_jobs*), it is left in the table as it is, and the rescue counts it as lost.
    """

    def __init__(self, state: WorkerState, completer: Completer) -> None:
        self._state = state
        self._completer = completer
        self.loses_jobs = False

    def release(self, attempts: Iterable[Attempt]) -> None:
        """Give back jobs, except those that have ended: their outcomes are on their way."""
        ends = [(attempt, self._outcome_of(attempt)) for attempt in attempts]
        for end in ends:
            settle(*end)
        # All of them before the first is logged, because that may take for ever.
        for attempt, outcome in [end for end in ends if self._completer.add(*end)]:
            if attempt.started_at:
                log_outcome(attempt, outcome, self._state.name)

    def _outcome_of(self, attempt: Attempt) -> Outcome:
        if not attempt.started_at:
            return released(AT_SHUTDOWN)
        return left_running() if self.loses_jobs else interrupted(attempt, AT_SHUTDOWN)

    def judge(self, outcome: Outcome) -> Outcome:
        """Return the outcome to write for a job that ended with *outcome*."""
        if outcome.interrupted and self.loses_jobs:
            return left_running(outcome.duration)
        return outcome

    def take_steps(self, timeout: float, *steps: Step) -> None:
        """Take the steps; do not wait for ever."""

        def take() -> None:
            own = OwnConnection(self._state.options.database, "exit")
            try:
                for step in steps:
                    step(own)
            except (psycopg.Error, OSError) as error:
                logger.error("could not give the jobs back, rescue will: %s", str(error).strip())
            own.close()

        thread = threading.Thread(target=take, name="pgjobs-exit", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread is to be had
            take()
        else:
            thread.join(timeout)

    def give_back_held(self, own: OwnConnection) -> None:
        """Write an outcome for every job that is held."""
        # A copy in one step, because the pump may still be changing what is held.
        unwritten = self._completer.unwritten()
        ends = [
            (attempt, unwritten.get(attempt) or self._outcome_of(attempt))
            for attempt in list(self._state.held.values())
        ]
        batch = [end for end in ends if end[1].kind is not Kind.LEFT]
        if batch:
            by_halves(batch, partial(self._write, own), on_refused=_note_left)

    def _write(self, own: OwnConnection, some: Sequence[Entry]) -> None:
        own.round_trip([writing.send for writing in writings(some, skips_locked=True)])
        release(own, some)

    def leave_everything(self, timeout: float) -> None:
        """Give back everything that is held, as far as the time allows."""
        self.take_steps(timeout, self.give_back_held, self.say_goodbye)

    def say_goodbye(self, own: OwnConnection) -> None:
        """Close the worker's row: whatever it still holds is free for the rescue."""
        with own.cursor() as cursor:
            workers.end_worker(cursor, self._state.worker_id)


def _note_left(entry: Entry, error: psycopg.Error) -> None:
    logger.of(entry[0]).warning("its outcome cannot be written, rescue will: %s", error)
