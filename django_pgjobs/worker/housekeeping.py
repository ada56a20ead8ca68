"""Cleaning Django's connections between two jobs of a thread.

A job may leave behind an open transaction, a changed search path, role, time zone or lock, a
closed connection, megabytes of logged queries. The next job must not notice. Translation and
time zone of Django live in the job's own context and end with it.
"""

from __future__ import annotations

import select
import time
from typing import Any

import psycopg
from django.db import connections
from psycopg.pq import TransactionStatus

from django_pgjobs.queries.sessions import Usage, reset_session
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)


def drop_dead_connections() -> None:
    """Close connections that the server has closed since the last job of this thread.

    An idle connection has nothing to read but the server's farewell, so this asks nobody.
    """
    for connection in connections.all(initialized_only=True):
        raw = connection.connection
        if raw is None or connection.in_atomic_block or connection.vendor != "postgresql":
            continue
        poll = select.poll()
        try:
            poll.register(raw.fileno(), select.POLLIN)
            is_dead = bool(poll.poll(0))
        except psycopg.Error:
            is_dead = True
        if is_dead:
            _close(connection)


def clean_connections(job_id: int) -> None:
    """Bring every connection of this thread back to the state of a new one."""
    for connection in connections.all(initialized_only=True):
        if connection.queries_log:
            connection.queries_log.clear()
        if connection.connection is None:
            _forget_transaction(connection)
            continue
        raw = connection.connection
        usage = getattr(raw, "pgjobs_usage", None)
        if usage is not None:
            usage.note_iterators(connection)
            if not usage.needs_reset and _is_as_new(connection):
                continue
        try:
            _clean(connection, job_id)
            if usage is not None:
                usage.needs_reset = False
            elif connection.connection is not None and connection.vendor == "postgresql":
                raw.pgjobs_usage = Usage(connection)
        except Exception:
            logger.info("job=%s connection could not be cleaned and is closed", job_id)
            _close(connection)


def _is_as_new(connection: Any) -> bool:
    # These change without any statement, too.
    raw = connection.connection
    return (
        not connection.in_atomic_block
        and connection.autocommit
        and raw.autocommit
        and raw.pgconn.transaction_status == TransactionStatus.IDLE
        and not _is_too_old(connection)
    )


def _clean(connection: Any, job_id: int) -> None:
    if connection.in_atomic_block or not connection.autocommit:
        logger.warning("job=%s left a transaction open; it is rolled back", job_id)
        _close(connection)
        return
    raw = connection.connection
    if (
        _is_too_old(connection)
        or raw.closed
        or raw.info.transaction_status != TransactionStatus.IDLE
        or not raw.autocommit
    ):
        _close(connection)
    elif connection.vendor == "postgresql":
        role = connection.settings_dict["OPTIONS"].get("assume_role")
        reset_session(raw, time_zone=connection.timezone_name, role=role)


def _is_too_old(connection: Any) -> bool:
    # CONN_MAX_AGE = 0, Django's default, ends a connection with its request. A worker has
    # none, and opening a connection takes fifty times as long as cleaning it.
    keeps = connection.settings_dict["CONN_MAX_AGE"] == 0
    return not keeps and connection.close_at is not None and time.monotonic() >= connection.close_at


def _close(connection: Any) -> None:
    _forget_transaction(connection)
    try:
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
    for connection in connections.all(initialized_only=True):
        _close(connection)
