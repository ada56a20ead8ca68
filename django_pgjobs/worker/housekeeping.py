"""Cleaning Django's connections between two jobs of a thread.

A job may leave behind an open transaction, a changed search path, role, time zone or lock, a
closed connection, megabytes of logged queries. The next job must not notice. Translation and
time zone of Django live in the job's own context and end with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.db import connections, reset_queries
from psycopg.pq import TransactionStatus

from django_pgjobs.queries.sessions import reset_session

logger = logging.getLogger(__name__)


class Usage:
    """Notes, as an execute wrapper of one connection, whether a job used it."""

    def __init__(self) -> None:
        self.used = True
        self.opened: object = None

    def __call__(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: Any,
        many: bool,
        context: dict[str, Any],
    ) -> Any:
        self.used = True
        return execute(sql, params, many, context)


def clean_connections(job_id: int) -> None:
    """Bring every connection of this thread back to the state of a new one."""
    reset_queries()
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            _forget_transaction(connection)
            continue
        usage = _usage_of(connection)
        if not usage.used and usage.opened is connection.connection:
            continue
        try:
            _clean(connection, job_id)
            usage.used = False
            usage.opened = connection.connection
        except Exception:
            logger.info("job=%s connection could not be cleaned and is closed", job_id)
            _close(connection)


def _usage_of(connection: Any) -> Usage:
    for wrapper in connection.execute_wrappers:
        if isinstance(wrapper, Usage):
            return wrapper
    usage = Usage()
    connection.execute_wrappers.append(usage)
    return usage


def _clean(connection: Any, job_id: int) -> None:
    if connection.in_atomic_block or not connection.autocommit:
        logger.warning("job=%s left a transaction open; it is rolled back", job_id)
        _close(connection)
        return
    connection.close_if_unusable_or_obsolete()
    raw = connection.connection
    if raw is None:
        return
    if raw.closed or raw.info.transaction_status != TransactionStatus.IDLE or not raw.autocommit:
        _close(connection)
    elif connection.vendor == "postgresql":
        role = connection.settings_dict["OPTIONS"].get("assume_role")
        reset_session(raw, time_zone=connection.timezone_name, role=role)


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
