"""Writing outcomes where a row is locked by somebody, or the server refuses one of them.

The statements are the same, but they skip locked rows. A job whose row was not changed and that its
attempt still owns was locked: its outcome waits in the completer. Where it does not own it any more
the outcome is lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.careful import by_halves
from django_pgjobs.worker.completer import Completer, Entry, writings
from django_pgjobs.worker.turn import Part, Rows, Turn


def plan_careful_writes(
    turn: Turn, batch: Sequence[Entry], connection: OwnConnection, completer: Completer
) -> None:
    """Let outcomes whose rows may be locked travel with the turn."""
    turn.parts.append(_careful_part(turn, batch, completer))
    turn.parts[-1].on_refused = lambda error: write_apart(turn, batch, connection, completer)


def write_apart(
    turn: Turn, batch: Sequence[Entry], connection: OwnConnection, completer: Completer
) -> None:
    """Write outcomes, and find those that are locked or refused."""

    def write(some: Sequence[Entry]) -> None:
        part = _careful_part(turn, some, completer)
        part.receive(connection.round_trip(part.sends))

    def note(entry: Entry, error: psycopg.Error) -> None:
        turn.answered.add(entry[0].id)
        if trouble_of(error) is Trouble.REFUSED:
            completer.simplify(entry, error)
        else:
            completer.put_aside(entry)

    by_halves(batch, write, on_refused=note)


def _careful_part(turn: Turn, batch: Sequence[Entry], completer: Completer) -> Part:
    part, written = Part(), set[int]()
    for send, _ in writings(batch, skips_locked=True):
        part.add(send, lambda rows: written.update(row[0] for row in rows))

    def settle(rows: Rows) -> None:
        owned = {row[0] for row in rows} - written
        turn.answered.update(attempt.id for attempt, _ in batch)
        completer.settle([entry for entry in batch if entry[0].id not in owned], written)
        for entry in batch:
            if entry[0].id in owned:
                completer.put_aside(entry)

    attempts = [(attempt.id, attempt.claim) for attempt, _ in batch]
    part.add(lambda cursor: jobs.send_owned(cursor, attempts), settle)
    return part
