"""Questions of the page System, to the server's catalogues and statistics.

All of them work for a role that may only see its own sessions; it sees less.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch

MAX_TRANSACTIONS = 8


class RelationRow(NamedTuple):
    """A table or an index of ours; sizes are bytes, *rows* an estimate."""

    is_index: bool
    name: str
    table: str
    bytes: int
    index_bytes: int
    rows: int | None
    dead: int | None
    last_autovacuum: datetime | None
    last_analyze: datetime | None
    scans: int | None
    is_valid: bool


def list_relations(cursor: Cursor) -> list[RelationRow]:
    """Return our tables, the largest first, then our indexes in the same order."""
    return [RelationRow._make(row) for row in fetch(cursor, "system_relations", {})]


class TransactionRow(NamedTuple):
    """An open transaction; what the role may not see is None."""

    pid: int
    application: str | None
    role: str | None
    state: str | None
    seconds: float | None
    statement_seconds: float | None
    waits_for: str | None


def list_transactions(cursor: Cursor) -> list[TransactionRow]:
    """Return the oldest transactions of the database, but this one."""
    params = {"max_transactions": MAX_TRANSACTIONS}
    return [TransactionRow._make(row) for row in fetch(cursor, "system_transactions", params)]


class ServerRow(NamedTuple):
    """The server and some of its settings."""

    version: str
    database: str
    role: str
    now: datetime
    is_standby: bool
    sessions: int
    max_sessions: int
    notify_usage: float
    prepared: int
    slots: int
    autovacuum: str
    synchronous_commit: str
    isolation: str
    time_zone: str
    idle_timeout: str
    oldest_successful: datetime | None
    oldest_failed: datetime | None
    oldest_cancelled: datetime | None


def get_server(cursor: Cursor) -> ServerRow:
    """Return what the server says of itself."""
    [row] = fetch(cursor, "system_server", {})
    return ServerRow._make(row)
