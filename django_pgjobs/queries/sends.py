"""Statements that travel together: sending several at once, and reading what they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from django_pgjobs.queries.cursor import Cursor, OwnCursor

# How long the server waits for the next statement while a transaction holds locks.
QUESTION_TIMEOUT = "1s"

Send = Callable[[Cursor], None]


@dataclass(frozen=True, slots=True)
class Question:
    """A statement whose rows are wanted before those behind it are sent."""

    send: Send
    answer: Callable[[list[Any]], None]

    def __call__(self, cursor: Cursor) -> None:
        self.send(cursor)


def take_rows(cursor: OwnCursor) -> list[Any]:
    """Return the rows of its statement, if it has sent one that gives some, and free the result.

    A cursor that is kept would keep that, too: the arguments of all jobs of a claim, say.
    """
    result = cursor.pgresult
    # `cursor.description` would build each column's description.
    if result is None or not result.nfields:
        return []
    rows = cursor.fetchall()
    result.clear()
    return rows


def send_together(
    connection: psycopg.Connection[tuple[Any, ...]],
    sends: Sequence[Send],
    cursors: Sequence[OwnCursor],
) -> None:
    """Send statements in a pipeline; raise what the first of them that fails has said.

    Left by an exception, a pipeline logs a warning about those behind it. Left otherwise it raises
    what they say, or IndexError where psycopg lost count of the answers.
    """
    first: psycopg.Error | None = None
    try:
        with connection.pipeline() as line:
            try:
                for send, cursor in zip(sends, cursors, strict=True):
                    send(cursor)
                    if isinstance(send, Question):
                        line.sync()
                        send.answer(cursor.fetchall())
            except psycopg.Error as error:
                first = error
    except (psycopg.Error, IndexError):
        if first is None:
            raise
    if first is not None:
        raise first


def roll_back(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """End a transaction in which a statement has failed."""
    if connection.info.transaction_status == TransactionStatus.INERROR:
        connection.rollback()


def send_begin(cursor: Cursor) -> None:
    """Begin a transaction."""
    # A pooler's session may have another default, by which no statement sees what those it waited
    # for have committed.
    cursor.execute("BEGIN ISOLATION LEVEL READ COMMITTED")


def send_commit(cursor: Cursor) -> None:
    """Commit it."""
    cursor.execute("COMMIT")


def send_patience(cursor: Cursor) -> None:
    """Let the server end the session if this process stands still while it holds locks."""
    cursor.execute(
        "SELECT pg_catalog.set_config('idle_in_transaction_session_timeout', $1::text, TRUE)",
        [QUESTION_TIMEOUT],
    )


def send_lock_timeout(cursor: Cursor, seconds: float) -> None:
    """Let no statement behind this one wait longer for a lock, until the transaction ends."""
    send_settings(cursor, {"lock_timeout": f"{round(1000 * seconds)}ms"})


def send_settings(cursor: Cursor, settings: Mapping[str, str]) -> None:
    """Let these settings hold until the transaction ends."""
    cursor.execute(
        "SELECT pg_catalog.set_config(name, value, TRUE)"
        " FROM unnest($1::text[], $2::text[]) AS setting (name, value)",
        [list(settings), list(settings.values())],
    )
