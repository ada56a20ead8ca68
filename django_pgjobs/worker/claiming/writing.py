"""The outcomes of one turn of the pump.

Where a row is locked by somebody, or the server refuses one of them, the statements are the same,
but they skip locked rows. A job whose row was not changed and that its attempt still owns was
locked: its outcome waits in the completer. Where it does not own it any more the outcome is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import psycopg

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.claiming.completer import Completer, Entry, writings
from django_pgjobs.worker.turns.careful import by_halves
from django_pgjobs.worker.turns.turn import Part, Rows, Turn, give_up


class Writing:
    """The outcomes that travel with one turn: *fresh* ones, and such that were *aside*."""

    def __init__(
        self,
        completer: Completer,
        connection: OwnConnection,
        fresh: Sequence[Entry],
        aside: Sequence[Entry],
    ) -> None:
        self._completer = completer
        self._connection = connection
        self._fresh = fresh
        self._aside = aside
        # The ids of the jobs for whose outcomes there is an answer.
        self._answered: set[int] = set()

    @property
    def entries(self) -> list[Entry]:
        """The outcomes to be written, with their attempts."""
        return [*self._fresh, *self._aside]

    def plan(self, turn: Turn) -> None:
        """Let the outcomes travel with the turn."""
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
        unanswered = [entry for entry in self._fresh if entry[0].id not in self._answered]
        self._completer.put_back(unanswered, is_sent=is_sent)

    def _settle(self, entries: Sequence[Entry], rows: Rows) -> None:
        self._answered.update(attempt.id for attempt, _ in entries)
        self._completer.settle(entries, {row[0] for row in rows})

    def _write_apart(self, batch: Sequence[Entry]) -> None:
        """Write outcomes, and find those that are locked or refused."""

        def write(some: Sequence[Entry]) -> None:
            part = self._careful_part(some)
            part.receive(self._connection.round_trip(part.sends))

        def note(entry: Entry, error: psycopg.Error) -> None:
            self._answered.add(entry[0].id)
            if trouble_of(error) is Trouble.REFUSED:
                self._completer.simplify(entry, error)
            else:
                self._completer.put_aside(entry)

        by_halves(batch, write, on_refused=note)

    def _careful_part(
        self, batch: Sequence[Entry], *, on_refused: Callable[[psycopg.Error], None] = give_up
    ) -> Part:
        part, written = Part(on_refused), set[int]()
        for send, _ in writings(batch, skips_locked=True):
            part.add(send, lambda rows: written.update(row[0] for row in rows))

        def settle(rows: Rows) -> None:
            owned = {row[0] for row in rows} - written
            self._answered.update(attempt.id for attempt, _ in batch)
            self._completer.settle([entry for entry in batch if entry[0].id not in owned], written)
            for entry in batch:
                if entry[0].id in owned:
                    self._completer.put_aside(entry)

        attempts = [(attempt.id, attempt.claim) for attempt, _ in batch]
        part.add(lambda cursor: jobs.send_owned(cursor, attempts), settle)
        return part
