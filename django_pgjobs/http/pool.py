"""Connections of our own for the HTTP API, lent for a few statements at a time.

Django's connections are not used for what workers do: a claim is neither to be part of a request's
transaction nor to meet what the project has done to its session. Nobody holds a connection while a
request waits.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg

from django_pgjobs.conf import get_conf
from django_pgjobs.http.deadlines import deadlines
from django_pgjobs.http.problems import Problem, unavailable
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.sends import Send

T = TypeVar("T")

# How long a request waits for a connection while all are lent.
PATIENCE_SECONDS = 5.0
# How often statements that others cross are sent, with pauses that get longer.
TRIES = 20
PAUSE_SECONDS = 0.002
# How long a statement waits for a lock: a row that somebody holds must not keep the others.
LOCK_SECONDS = 0.2


class Pool:
    """At most so many connections; the one that was used last is lent first."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Know of no connection, as a process that was forked: the others are its parent's."""
        self._change = threading.Condition()
        self._free: list[OwnConnection] = []
        self._lent = 0

    def take(self) -> OwnConnection:
        """Return a connection; raise Problem (503) if all are lent for too long."""
        most = get_conf().HTTP_MAX_CONNECTIONS
        with self._change:
            is_free = self._change.wait_for(lambda: self._lent < most, PATIENCE_SECONDS)
            if not is_free:
                raise unavailable("All connections to the database are in use.")
            self._lent += 1
            connection = self._free.pop() if self._free else None
        if connection is not None:
            # A server that was restarted has said goodbye to those that nobody used.
            connection.close_if_dead()
            return connection
        try:
            alias = get_conf().WORKER_DATABASE or job_database()
            return deadlines.watch(OwnConnection(alias, "http", lock_seconds=LOCK_SECONDS))
        except BaseException:
            self._note_given_back()
            raise

    def give_back(self, connection: OwnConnection) -> None:
        """Take back a connection; one that is broken is opened anew when it is used."""
        connection.close_if_broken()
        with self._change:
            self._free.append(connection)
        self._note_given_back()

    def _note_given_back(self) -> None:
        with self._change:
            self._lent -= 1
            self._change.notify()

    def close(self) -> None:
        """Close what is not lent."""
        with self._change:
            free, self._free = self._free, []
        for connection in free:
            connection.close()


pool = Pool()
os.register_at_fork(after_in_child=pool.begin_anew)


@contextlib.contextmanager
def borrowed() -> Iterator[OwnConnection]:
    """Lend a connection for statements that wait for nothing but the database.

    On an event loop it is to be used in a thread: `await in_thread(function)`.
    """
    connection = pool.take()
    try:
        yield connection
    finally:
        pool.give_back(connection)


def turn(sends: Sequence[Send]) -> list[list[Any]]:
    """Send statements that travel and commit together; return the rows of each.

    They are sent again if another transaction crosses them, as `until_uncrossed` does.
    """
    return until_uncrossed(lambda connection: connection.round_trip(sends))


def until_uncrossed(send: Callable[[OwnConnection], T]) -> T:
    """Return what *send* returns; call it again if another transaction crossed its statements.

    Nothing of them was done then. Raise Problem (503) if that goes on, and psycopg.Error for other
    trouble, which the view turns into an answer.
    """
    tried = 0
    while True:
        try:
            with borrowed() as connection:
                return send(connection)
        except psycopg.Error as error:
            tried += 1
            if trouble_of(error) is not Trouble.CROSSED:
                raise
            if tried == TRIES:
                raise crossed() from error
        time.sleep(PAUSE_SECONDS * tried)


def crossed() -> Problem:
    """Return the problem of statements that others cross again and again."""
    return unavailable("Others change the same rows.")
