"""Writing what came of jobs: the statements, the order and the ways around of the pump.

An outcome is fenced by its claim: one that comes too late changes nothing and is told so. What
waits for the jobs that ended goes in the same transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import psycopg

from django_pgjobs.http.looking import looks
from django_pgjobs.http.options import make_options
from django_pgjobs.http.pool import PAUSE_SECONDS, TRIES, borrowed, crossed
from django_pgjobs.http.problems import Problem
from django_pgjobs.http.station import station
from django_pgjobs.queries import claims
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.notifications import JOBS_CHANNEL, notify_workers
from django_pgjobs.queries.sends import Send
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.releases import Releases
from django_pgjobs.worker.claiming.settling import Settling
from django_pgjobs.worker.claiming.writing import Writing
from django_pgjobs.worker.running.job_log import log_outcome
from django_pgjobs.worker.running.outcome import Entry, Outcome
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.sending import Sender
from django_pgjobs.worker.turns.turn import Turn

# How long a request tries to write outcomes whose rows others have locked.
PATIENCE_SECONDS = 0.5
# How long it goes on with what waits for the jobs that ended; workers of ours find the rest.
FOLLOWING_SECONDS = 0.25


class Delivery:
    """The outcomes of one request, on their way to the database."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = list(entries)
        state = WorkerState(make_options(), "http")
        state.held = {attempt.id: attempt for attempt, _ in self._entries}
        self._state = state
        self._completer = Completer(
            state,
            station.tally,
            self._note_stored,
            station.unwritten,
            on_doubt=station.note_doubtful,
        )
        for attempt, outcome in self._entries:
            self._completer.add(attempt, outcome)
        # What was written, by the ids of jobs: another outcome where the server refuses the first.
        self.stored: dict[int, Outcome] = {}
        self._releases = Releases(_ignore)
        self._sender = Sender("http")
        self._settling = Settling("http", _ignore)
        self._failures = 0
        self._losses = 0
        self._began = time.monotonic()

    def _note_stored(self, attempt: Attempt, outcome: Outcome) -> None:
        self.stored[attempt.id] = outcome
        station.note_stored(attempt, outcome)
        log_outcome(attempt, outcome, None)

    @property
    def locked(self) -> set[int]:
        """The jobs whose outcomes are not written because somebody has locked their rows."""
        return set(self._state.held)

    @property
    def unwritten(self) -> set[int]:
        """These, and the jobs that the database refuses to change.

        Their attempts may go on to own them. Told "lost", a worker would forget them, and its next
        claim would give it the same attempts once more.
        """
        return self.locked | self._state.unwritable

    def run(self) -> None:
        """Write; raise Problem or psycopg.Error if the database does not let it."""
        if not self._entries:
            return
        while (pause := self._work_until_pause()) is not None:
            time.sleep(pause)

    def _work_until_pause(self) -> float | None:
        """Take turns on one connection; return for how long to give it back, None at the end.

        While it waits for a locked row it holds no connection that others could use.
        """
        try:
            with borrowed() as connection:
                while (pause := self._try_turn(connection)) == 0:
                    pass
                if pause is None:
                    self._tell_others(connection)
                return pause
        except Problem:
            if not self.stored:
                raise
            # The client is told what was written; the rest it says again.
            return None

    def _try_turn(self, connection: OwnConnection) -> float | None:
        try:
            return self._take_turn(connection)
        except psycopg.Error as error:
            return self._pause_after(connection, error)

    def _pause_after(self, connection: OwnConnection, error: psycopg.Error) -> float:
        """Return the seconds until the turn is sent again; raise if that is of no use."""
        self._failures += 1
        trouble = trouble_of(error)
        if trouble is Trouble.LOST:
            connection.close()
            self._losses += 1
            # A server that was restarted is there again; one that is down is not for us to await.
            if self._losses > 1:
                raise error
        elif trouble is not Trouble.CROSSED:
            raise error
        elif self._failures >= TRIES:
            raise crossed() from error
        return PAUSE_SECONDS * self._failures

    def _take_turn(self, connection: OwnConnection) -> float | None:
        """Write what is due; return the seconds until the next turn, None if there is none."""
        now = time.monotonic()
        turn = Turn(0)
        connection.open()
        writing = Writing.of_due(self._completer, connection, flushes=True, on_queues=_ignore)
        writing.plan(turn)
        travelling = [attempt for attempt, _ in writing.travelling]
        self._releases.plan(turn, travelling)
        self._settling.plan(turn, travelling, connection)
        if not (turn.parts or writing.entries):
            if self._state.held:
                due_at, until = self._completer.due_at, self._began + PATIENCE_SECONDS
            else:
                due_at, until = self._settling.due_at, self._began + FOLLOWING_SECONDS
            return None if due_at >= until else max(0.0, due_at - now)
        try:
            if turn.parts:
                self._sender.send(turn, connection)
        except psycopg.Error as error:
            writing.put_back(is_sent=trouble_of(error) is Trouble.LOST)
            raise
        writing.write_others()
        follows = self._releases.are_under_way or self._settling.is_under_way
        return 0.0 if self._state.held or follows else None

    def _tell_others(self, connection: OwnConnection) -> None:
        """Notify workers of jobs that can run now: again, or because a key is free."""
        ended = [(attempt, self.stored[attempt.id]) for attempt, _ in self._entries_stored()]
        delays = [(a, outcome.delay or 0.0) for a, outcome in ended if outcome.status is None]
        queues = {attempt.queue_name for attempt, delay in delays if not delay}
        queues |= {a.queue_name for a, _ in ended if looks.last.is_limited(a.queue_name)}
        lanes = {attempt.row.lane for attempt, _ in ended if attempt.row.lane}
        sends: list[Send] = []
        if queues:
            sends.append(lambda cursor: notify_workers(cursor, sorted(queues)))
        if lanes:
            sends.append(
                lambda cursor: claims.send_key_wakeup(cursor, channel=JOBS_CHANNEL, lanes=lanes)
            )
        if sends:
            connection.round_trip(sends)
        later = [delay for _, delay in delays if delay]
        if later:
            looks.expect(min(later))

    def _entries_stored(self) -> list[Entry]:
        return [entry for entry in self._entries if entry[0].id in self.stored]


def deliver(entries: Iterable[Entry]) -> Delivery:
    """Write outcomes; return what came of each."""
    delivery = Delivery(entries)
    delivery.run()
    return delivery


def _ignore(queues: list[str]) -> None:
    """Tell nobody: the database notifies those who listen."""
