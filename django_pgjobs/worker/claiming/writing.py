"""The outcomes of one turn of the pump.

Where a row is locked by somebody, or the server refuses one of them, the statements are the same,
but they skip locked rows. A job whose row was not changed and that its attempt still owns was
locked: its outcome waits in the completer. Where it does not own it any more the outcome is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic

import psycopg

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.sends import Send, send_lock_timeout
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.completer import KEY_SECONDS, Completer, meant_by
from django_pgjobs.worker.claiming.outcome_statements import resolution, writings
from django_pgjobs.worker.claiming.refused import plain_failure
from django_pgjobs.worker.running.capacity import most_ahead
from django_pgjobs.worker.running.outcome import Entry
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.turns.careful import by_halves
from django_pgjobs.worker.turns.turn import Part, Rows, Turn, give_up

logger = get_logger(__name__)

# After so many writes that look for refused outcomes the turn goes on; their plain failures are not
# counted.
MOST_TRIES = 100
# So long a worker that ends tries what was refused before.
LAST_SECONDS = 1.0


class Writing:
    """The outcomes of one turn: *fresh* ones, those set *aside* and due again, and others.

    *keyed* are fillings that may have to wait for a unique key, *refused* what the server has
    refused before. These are sent alone.
    """

    def __init__(
        self,
        completer: Completer,
        connection: OwnConnection,
        fresh: Sequence[Entry] = (),
        aside: Sequence[Entry] = (),
        keyed: Sequence[Entry] = (),
        refused: Sequence[Entry] = (),
        *,
        on_queues: Callable[[list[str]], None] = lambda queues: None,
    ) -> None:
        self._completer = completer
        self._connection = connection
        self._fresh = fresh
        self._aside = aside
        self._keyed = keyed
        self._refused = refused
        self._on_queues = on_queues
        # The batches of jobs that were written alone.
        self.batches: list[int] = []
        # The attempts for whose outcomes there is an answer.
        self._answered: set[Attempt] = set()

    @classmethod
    def of_due(
        cls,
        completer: Completer,
        connection: OwnConnection,
        *,
        flushes: bool,
        on_queues: Callable[[list[str]], None],
    ) -> Writing:
        """Take what is due of the outcomes: fresh ones if it *flushes* them."""
        fresh = completer.take(most_ahead(connection.distance)) if flushes else []
        if completer.waits_for_keys:
            # Somebody holds a key: no turn is to wait for one again.
            for entry in fresh:
                if entry[1].takes_key:
                    completer.put_aside(entry)
            fresh = [entry for entry in fresh if not entry[1].takes_key]
        aside, keyed = completer.take_due(), completer.take_due_keys()
        refused = completer.refused.due()
        return cls(completer, connection, fresh, aside, keyed, refused, on_queues=on_queues)

    @property
    def entries(self) -> list[Entry]:
        """The outcomes to be written, with their attempts."""
        return [*self._fresh, *self._aside, *self._keyed, *self._refused]

    @property
    def travelling(self) -> list[Entry]:
        """The outcomes that are written with the turn."""
        return [*self._fresh, *self._aside]

    def plan(self, turn: Turn) -> None:
        """Add the outcomes to the turn."""
        if self._fresh:
            part = turn.begin(lambda error: self._write_apart(self._fresh))
            for send, entries in writings(self._fresh):
                part.add(send, partial(self._settle, entries))
        if self._aside:
            part = self._careful_part(
                self._aside, on_refused=lambda error: self._write_apart(self._aside)
            )
            turn.parts.append(part)

    def put_back(self, *, is_sent: bool) -> None:
        """Give back the outcomes that nothing is known of; *is_sent*: they may be written."""
        unanswered = [entry for entry in self._fresh if entry[0] not in self._answered]
        self._completer.put_back(unanswered, is_sent=is_sent)

    def write_others(self) -> None:
        """Write what is sent alone."""
        self.write_keyed()
        self.write_refused()

    def write_keyed(self) -> None:
        """Write the fillings that may wait for a unique key, one by one, until one had to wait."""
        until = monotonic() + KEY_SECONDS
        for entry in self._keyed:
            try:
                self._write_alone([entry], partial(send_lock_timeout, seconds=KEY_SECONDS))
            except psycopg.Error as error:
                if trouble_of(error) is Trouble.LOST:
                    raise
                self._note_refused(entry, error)
                self._completer.pause_keys()
                break
            if monotonic() > until:
                break

    def write_refused(self, *, seconds: float = math.inf) -> None:
        """Write what was refused before, or what is to replace it; begin nothing after *seconds*.

        What is refused again, or was not tried, stays in the completer.
        """
        if not self._refused:
            return
        began = monotonic()

        def write(some: Sequence[Entry]) -> None:
            if monotonic() < began + seconds:
                self._write_alone(some)

        by_halves(self._refused, write, on_refused=self._note_refused)
        refused = self._completer.refused
        refused.note_tried(self._refused, monotonic() - began)
        written = [attempt.batch_id for attempt, _ in self._refused if not refused.has(attempt)]
        self.batches = [batch_id for batch_id in written if batch_id is not None]

    def _write_alone(self, some: Sequence[Entry], *before: Send) -> None:
        """Write outcomes, and then release what waits for their jobs, without the turn."""
        part = self._careful_part(some)
        answers = self._connection.round_trip([*before, *part.sends])
        part.receive(answers[len(before) :])
        self._on_queues(release(self._connection, some))

    def _settle(self, entries: Sequence[Entry], rows: Rows) -> None:
        self._answered.update(attempt for attempt, _ in entries)
        self._completer.settle(entries, _ids_of(rows))
        if rows and len(rows[0]) > 1:
            # Of jobs of batches: what follows these has got jobs.
            self._on_queues([queue for _, queue in rows if queue is not None])

    def _write_apart(self, batch: Sequence[Entry]) -> None:
        """Write outcomes, and find those that are locked or refused.

        Where that takes very many statements, the rest is left to the next turn. Each outcome that
        is to set a unique key might wait for it, and all of them with the others.
        """
        tries = 0

        def write(some: Sequence[Entry]) -> None:
            nonlocal tries
            tries += 1
            if tries <= MOST_TRIES:
                part = self._careful_part(some)
                part.receive(self._connection.round_trip(part.sends))

        for entry in batch:
            if entry[1].takes_key:
                self._answered.add(entry[0])
                self._completer.put_aside(entry)
        others = [entry for entry in batch if not entry[1].takes_key]
        if others:
            by_halves(others, write, on_refused=self._note_refused)
        if tries > MOST_TRIES:
            self.put_back(is_sent=False)
            self._fresh = [entry for entry in self._fresh if entry[0] in self._answered]

    def _note_refused(self, entry: Entry, error: psycopg.Error) -> None:
        if trouble_of(error) is not Trouble.REFUSED or _is_overtaken(entry, error):
            self._completer.put_aside(entry)
        elif plain := plain_failure(entry, error):
            self._write_plain(plain, entry, error)
        else:
            self._completer.keep_refused(entry, error)
        self._answered.add(entry[0])

    def _write_plain(self, plain: Entry, entry: Entry, error: psycopg.Error) -> None:
        """Let a job end with a plain text, because the server has just refused its outcome.

        Later it might take that again: what was wrong for a moment is to fail no job.
        """
        try:
            self._write_alone([plain])
        except psycopg.Error as refusal:
            trouble = trouble_of(refusal)
            if trouble is Trouble.LOST:
                raise
            if trouble is Trouble.REFUSED:
                self._completer.keep_refused(entry, refusal)
            else:
                self._completer.put_aside(entry)
        else:
            if not self._completer.keeps(entry[0]):
                message = "the server refuses its outcome; %s is stored instead: %s"
                logger.of(entry[0]).warning(message, plain[1].kind, str(error).strip())

    def _careful_part(
        self, batch: Sequence[Entry], *, on_refused: Callable[[psycopg.Error], None] = give_up
    ) -> Part:
        part, written = Part(on_refused), set[int]()
        for send, _ in writings(batch, skips_locked=True):
            part.add(send, lambda rows: written.update(_ids_of(rows)))

        def settle(rows: Rows) -> None:
            owned = meant_by(_ids_of(rows) - written, batch)
            self._answered.update(attempt for attempt, _ in batch)
            locked = {attempt for attempt, _ in owned}
            self._completer.settle([entry for entry in batch if entry[0] not in locked], written)
            for entry in owned:
                self._completer.put_aside(entry)

        attempts = [(attempt.id, attempt.claim) for attempt, _ in batch]
        part.add(lambda cursor: jobs.send_owned(cursor, attempts), settle)
        return part


def write_last(completer: Completer, connection: OwnConnection) -> None:
    """Write what was refused before, as far as the server takes it now."""
    writing = Writing(completer, connection, refused=completer.refused.all())
    try:
        writing.write_refused(seconds=LAST_SECONDS)
    except psycopg.Error as error:
        logger.warning("refused outcomes are left to the rescue: %s", str(error).strip())


def release(connection: OwnConnection, ended: Sequence[Entry]) -> list[str]:
    """Release what waits for jobs whose outcomes are written; return the queues.

    Apart, because no outcome is to blame for what is refused here: that is left to the sweep.
    """
    try:
        [rows] = connection.round_trip([resolution(ended)])
    except psycopg.Error as error:
        if trouble_of(error) is Trouble.LOST:
            raise
        logger.warning("jobs that wait for others are left to the sweep: %s", error)
        return []
    return [row[0] for row in rows if row[0] is not None]


def _ids_of(rows: Rows) -> set[int]:
    """Return the ids of jobs in rows; where a batch goes on, there are rows of queues as well."""
    return {row[0] for row in rows if row[0] is not None}


def _is_overtaken(entry: Entry, error: psycopg.Error) -> bool:
    """Has another job just taken the unique key? The next try sees it."""
    is_filling = entry[1].control is not None
    return is_filling and error.diag.constraint_name == "pgjobs_job_unique"
