"""The worker's own connections: autocommit, prepared statements, a deadline on everything.

No user code ever touches them.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
from django.db import connections
from psycopg import sql
from psycopg.pq import PipelineStatus, TransactionStatus

from django_pgjobs.queries.cursor import Cursor, OwnCursor
from django_pgjobs.queries.errors import CommitRefused, is_stale
from django_pgjobs.queries.notifications import listen
from django_pgjobs.queries.own_settings import (
    PLANNER_SETTINGS,
    SERVER_SETTINGS,
    apply_settings,
    connection_parameters,
    find_schema,
)
from django_pgjobs.queries.sends import (
    Question,
    Send,
    roll_back,
    send_begin,
    send_commit,
    send_patience,
    send_settings,
    send_together,
    take_rows,
)

# How long an answer may take before the connection is cut here: the server would have cut off the
# statement by then, so it is frozen or gone.
ANSWER_SECONDS = 35.0
# How long a statement waits for a lock, unless its connection has another limit.
LOCK_SECONDS = 10.0

REFUSED_COMMIT = "the commit failed (a lost connection, or a deferred constraint)"


class SessionUnusable(psycopg.OperationalError):
    """The session cannot do what it is for, but another one may: connect again."""


class OwnConnection:
    """One connection of the worker to the database of *alias*; opened when first used.

    It is open to a server that takes writes, or not at all. An answer that takes longer than
    *answer_seconds* makes the connection overdue, and a lock that takes longer than *lock_seconds*
    ends the statement.

    A commit waits in the server for a synchronous standby, also when its connection is cut, and a
    cancellation would show what is not replicated. So as long as one of its last session waits, it
    is not opened again: each session would wait, until the server has room for none.
    """

    def __init__(
        self,
        alias: str,
        role: str,
        *,
        answer_seconds: float | None = None,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.alias = alias
        self.role = role
        self.answer_seconds = ANSWER_SECONDS if answer_seconds is None else answer_seconds
        self._settings = SERVER_SETTINGS | {"lock_timeout": f"{round(1000 * lock_seconds)}ms"}
        self.is_direct = True
        self._listens = False
        self.answer_due: float | None = None
        # When a statement was last begun or over; infinity while connecting, which takes its time
        # with each name and host.
        self.moved_at = 0.0
        # Of our tables, as the search path of the role finds them; None: it does not.
        self.schema: str | None = None
        # Seconds of the shortest round trip since the connection was opened, in which the server
        # had next to nothing to do.
        self.distance = 0.0
        # How often it was opened.
        self.opened = 0
        # The server's process of its last session, unknown behind a pooler.
        self._last_pid = 0
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        # Used ones, whose results are freed: a new one takes longer than a short statement.
        self._cursors: list[OwnCursor] = []

    @property
    def is_open(self) -> bool:
        return self._connection is not None and not self._connection.closed

    @property
    def listens(self) -> bool:
        """Is it open, and has it subscribed to notifications?"""
        return self._listens and self.is_open

    def open(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Return the open connection; raise psycopg.OperationalError if it cannot be opened."""
        if self._connection is None or self._connection.closed:
            self._listens, self._cursors = False, []
            params = connection_parameters(self.alias)
            params["application_name"] = f"pgjobs {self.role}"
            self.moved_at = math.inf
            try:
                self._connection = psycopg.connect(**params, autocommit=True)
            finally:
                self.moved_at = time.monotonic()
            try:
                # A pooler takes the connection and lets the first statement wait.
                with self.deadline():
                    self._set_up(self._connection)
            except BaseException:
                self.close()
                raise
            self.opened += 1
        return self._connection

    def listen(self, handler: Callable[[psycopg.Notify], None]) -> None:
        """Subscribe to notifications, which *handler* is given when they are read."""
        connection = self.open()
        connection.add_notify_handler(handler)
        with self.deadline():
            listen(connection)
        self._listens = True

    def close(self) -> None:
        """Close the connection; the next use opens a new one."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def close_if_broken(self) -> None:
        """Close the connection if it is broken."""
        if self._connection is not None and (
            self._connection.closed
            or self._connection.info.transaction_status != TransactionStatus.IDLE
        ):
            self.close()

    def close_if_dead(self) -> None:
        """Close the connection if the server has closed it; takes no round trip.

        One that is idle and does not listen has nothing to read but the server's farewell.
        """
        if self.is_open:
            poll = select.poll()
            poll.register(self.open().fileno(), select.POLLIN)
            if poll.poll(0):
                self.close()

    @contextlib.contextmanager
    def cursor(self) -> Iterator[psycopg.RawCursor[tuple[Any, ...]]]:
        """Give a cursor, under the deadline; each statement is its own transaction."""
        connection = self.open()
        with self._usable_session(), self._new_cursor(connection) as cursor:
            try:
                yield cursor
            except psycopg.Error:
                roll_back(connection)
                raise

    def round_trip(self, sends: Sequence[Send]) -> list[list[Any]]:
        """Send statements that travel and commit together; return the rows of each.

        Each function gets a cursor and sends one statement. Where one is a Question, those behind
        it are sent when its answer is there, in a second round trip of the same transaction.
        """
        connection = self.open()
        before: list[Send] = []
        after: list[Send] = []
        is_idle = connection.info.transaction_status == TransactionStatus.IDLE
        asks = any(isinstance(send, Question) for send in sends)
        if is_idle and (asks or not self.is_direct):
            before, after = [send_begin], [send_commit]
        if is_idle and asks:
            before.append(send_patience)
        if not self.is_direct:
            # A pooler's session keeps no settings of ours.
            before.append(self._send_settings)
        began = time.monotonic()
        rows = self._exchange(connection, [*before, *sends, *after])
        self.distance = min(self.distance, time.monotonic() - began)
        return rows[len(before) : len(before) + len(sends)]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Let the round trips and statements in it commit together, or be rolled back."""
        connection = self.open()
        # Not round trips: these begin and commit by themselves behind a pooler.
        begin: list[Send] = [send_begin, send_patience]
        if not self.is_direct:
            begin.append(self._send_settings)
        self._exchange(connection, begin)
        try:
            yield
        except BaseException:
            self.close_if_broken()  # an error that is not of the server leaves it open
            raise
        self._exchange(connection, [send_commit])

    def _send_settings(self, cursor: Cursor) -> None:
        names = ("lock_timeout", "array_nulls", *PLANNER_SETTINGS)
        send_settings(cursor, {name: self._settings[name] for name in names})

    def _exchange(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        sends: Sequence[Send],
    ) -> list[list[Any]]:
        with self._usable_session():
            cursors = [self._take_cursor(connection) for _ in sends]
            try:
                if len(sends) > 1:
                    send_together(connection, sends, cursors)
                else:
                    for send, cursor in zip(sends, cursors, strict=True):
                        send(cursor)
            except psycopg.Error:
                roll_back(connection)
                raise
            rows = [take_rows(cursor) for cursor in cursors]
            self._cursors += cursors
            return rows

    def cut(self) -> None:
        """Break the connection under a statement that waits too long; safe from any thread."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        with contextlib.suppress(OSError, psycopg.Error):
            with socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)

    def is_overdue(self) -> bool:
        """Has a statement waited longer for its answer than any may?"""
        due = self.answer_due
        return due is not None and time.monotonic() > due

    @contextlib.contextmanager
    def deadline(self) -> Iterator[None]:
        self.moved_at = time.monotonic()
        self.answer_due = self.moved_at + self.answer_seconds
        try:
            yield
        finally:
            self.answer_due = None
            self.moved_at = time.monotonic()

    def _take_cursor(self, connection: psycopg.Connection[tuple[Any, ...]]) -> OwnCursor:
        """Return a cursor without rows: those of a round trip that failed do not come back."""
        return self._cursors.pop() if self._cursors else self._new_cursor(connection)

    def _new_cursor(self, connection: psycopg.Connection[tuple[Any, ...]]) -> OwnCursor:
        cursor = OwnCursor(connection)
        cursor.schema = self.schema
        return cursor

    @contextlib.contextmanager
    def _usable_session(self) -> Iterator[None]:
        """Keep the deadline, and close a session that turns out to be unusable."""
        try:
            with self.deadline():
                yield
        except psycopg.Error as error:
            self._raise_refused_commit(error)
            if not is_stale(error):
                self.close_if_broken()  # also where a transaction of several statements is left
                raise
            self.close()
            raise SessionUnusable(f"{str(error).strip()} (the session is given up)") from error
        except IndexError as error:
            # psycopg may lose count of the answers where a commit is refused.
            self.close()
            raise CommitRefused(REFUSED_COMMIT) from error

    def _raise_refused_commit(self, error: psycopg.Error) -> None:
        """Raise CommitRefused if a pipeline cannot be ended though the server is there.

        A deferred constraint or trigger that fails at the commit has no statement to belong to,
        and psycopg does not say what the server said.
        """
        raw = self._connection
        if raw is None or raw.closed or error.sqlstate is not None:
            return
        if raw.pgconn.pipeline_status != PipelineStatus.OFF:
            self.close()
            raise CommitRefused(REFUSED_COMMIT) from error

    def _set_up(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        began = time.monotonic()
        [(backend_pid, is_standby, is_read_only, last_wait)] = connection.execute(
            "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(),"
            " pg_catalog.current_setting('transaction_read_only')::boolean,"
            " (SELECT wait_event FROM pg_catalog.pg_stat_get_activity(%s::integer))",
            [self._last_pid],
            prepare=False,
        ).fetchall()
        self.distance = time.monotonic() - began
        # A pooler invents the process id that it tells the client at the start.
        self.is_direct = backend_pid == connection.info.backend_pid
        if is_standby:
            raise SessionUnusable("the server is a standby and takes no writes.")
        if is_read_only and not self.is_direct:
            raise SessionUnusable("the server behind the pooler takes no writes.")
        if last_wait == "SyncRep":
            raise SessionUnusable("a commit of the session before still waits for a standby.")
        self._last_pid = backend_pid if self.is_direct else 0
        role = connections[self.alias].settings_dict["OPTIONS"].get("assume_role")
        if self.is_direct and role:
            set_role = sql.SQL("SET ROLE {}").format(sql.Identifier(role))
            connection.execute(set_role, prepare=False)
        # After the role is set: the path may hold "$user".
        self.schema = find_schema(connection)
        if self.is_direct:
            connection.prepare_threshold = 0
            apply_settings(connection, self._settings)
        else:
            connection.prepare_threshold = None
