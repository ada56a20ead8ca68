"""Cleaning Django's connections between two jobs of a thread.

A job may leave behind an open transaction, a changed search path, role, time zone or lock, a
closed connection, megabytes of logged queries. The next job must not notice. What a statement
does to its session cannot be told from its text, so a session that was used at all is reset,
unless the task promises that it need not be. Translation and time zone of Django live in the
job's own context and end with it.
"""

from __future__ import annotations

import select
import time
from typing import Any

import psycopg
from django.db import connections
from django.db.backends.signals import connection_created
from psycopg.pq import TransactionStatus

from django_pgjobs.queries.sessions import (
    ConnectionsOfThread,
    is_watched,
    reset_session,
    usage_of,
)
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)


def in_transaction_of_others() -> list[Any]:
    """Return the connections in whose transaction this thread has called us, say of a TestCase.

    They are not ours to end. Ask before code of the project runs: it may leave one open.
    """
    return [each for each in connections.all(initialized_only=True) if each.in_atomic_block]


def drop_dead_connections() -> None:
    """Close connections that the server has closed since this thread used them last.

    An idle connection has nothing to read but the server's farewell, so this takes no round trip.
    Also those that a statement has found useless, say because the server takes no writes any more.
    """
    for connection in ConnectionsOfThread():
        raw = connection.connection
        if raw is None or connection.in_atomic_block or connection.vendor != "postgresql":
            continue
        if _is_dead(raw) or usage_of(raw).is_stale:
            _close(connection)


def _is_dead(raw: Any) -> bool:
    poll = select.poll()
    try:
        poll.register(raw.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    except psycopg.Error:
        return True


def clean_connections(attempt: Attempt, *, resets: bool = True) -> None:
    """Bring every connection of this thread back to the state of a new one.

    *resets* is false after a job whose task promises to leave nothing in its sessions.
    """
    for connection in ConnectionsOfThread():
        if connection.queries_log:
            connection.queries_log.clear()
    _clean_all(attempt, resets=resets)


def close_what_is_left(attempt: Attempt) -> None:
    """Close connections of this thread that a job has left in a transaction, or broken."""
    _clean_all(attempt, resets=False)
    drop_dead_connections()


def _clean_all(attempt: Attempt, *, resets: bool) -> None:
    for connection in ConnectionsOfThread():
        if connection.connection is None:
            _forget_transaction(connection)
            continue
        try:
            _clean(connection, attempt, resets=resets)
        except Exception:
            logger.of(attempt).info("connection could not be cleaned and is closed")
            _close(connection)


def _clean(connection: Any, attempt: Attempt, *, resets: bool) -> None:
    if connection.in_atomic_block or not connection.autocommit:
        logger.of(attempt).warning("left a transaction open; it is rolled back")
        _close(connection)
    elif _is_too_old(connection):
        _close(connection)
    elif connection.vendor == "postgresql":
        _clean_session(connection, resets=resets)


def _clean_session(connection: Any, *, resets: bool) -> None:
    raw = connection.connection
    usage = usage_of(raw)
    if (
        usage.is_stale
        or raw.closed
        or raw.pgconn.transaction_status != TransactionStatus.IDLE
        or not raw.autocommit
        or usage.is_altered(raw)
    ):
        _close(connection)
        return
    if usage.is_used and resets:
        _reset(connection)
    usage.is_used = False
    if connection.pool:
        # It may have fewer connections than there are threads.
        connection.close()


def _watch(connection: Any, **kwargs: Any) -> None:
    if connection.vendor != "postgresql":
        return
    if connection.pool and _is_dead(connection.connection):  # the server ended it meanwhile
        _close(connection)
        connection.connect()  # comes back here
        return
    raw = connection.connection
    if is_watched(raw) and usage_of(raw).is_used:  # a job has given it back to a pool like that
        _reset(connection)
    usage_of(raw)


def _reset(connection: Any) -> None:
    raw, role = connection.connection, connection.settings_dict["OPTIONS"].get("assume_role")
    reset_session(raw, time_zone=connection.timezone_name, role=role)
    usage_of(raw).is_used = False


# From the first statement on: what fails the first job of a session must not fail a second one.
connection_created.connect(_watch)


def _is_too_old(connection: Any) -> bool:
    # CONN_MAX_AGE = 0, Django's default, ends a connection with its request. A worker has
    # none, and opening a connection takes fifty times as long as cleaning it.
    keeps = connection.settings_dict["CONN_MAX_AGE"] == 0
    return not keeps and connection.close_at is not None and time.monotonic() >= connection.close_at


def _close(connection: Any) -> None:
    _forget_transaction(connection)
    try:
        if connection.vendor == "postgresql" and connection.connection is not None:
            connection.connection.close()  # Django may only give it back to a pool
        connection.close()
    except Exception:
        connection.connection = None


def _forget_transaction(connection: Any) -> None:
    connection.in_atomic_block = False
    connection.savepoint_ids = []
    connection.atomic_blocks = []
    connection.run_on_commit = []
    connection.needs_rollback = False
    connection.closed_in_transaction = False
    connection.rollback_exc = None


def close_connections() -> None:
    """Close every connection of this thread; it will run no more jobs."""
    for connection in ConnectionsOfThread():
        _close(connection)
