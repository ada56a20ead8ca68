"""What the worker's own connections set: how to connect, and how the server plans and waits.

The planner settings leave each hot statement the one plan it was written for: a table that fills
and empties all day has no statistics to trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from django.db import connections
from psycopg import pq

# A statement of ours that takes longer than this is cut off by the server.
STATEMENT_SECONDS = 30

PLANNER_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_nestloop": "off",
    "enable_mergejoin": "off",
    # Compiling a statement takes seconds; PostgreSQL decides by the cost, which is a guess.
    "jit": "off",
}
SERVER_SETTINGS = PLANNER_SETTINGS | {
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    "idle_in_transaction_session_timeout": "60s",
    "idle_session_timeout": "0",
    "transaction_timeout": "0",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    # How values are read and written.
    "array_nulls": "on",
    "DateStyle": "ISO",
    # Statements name the schema of our tables, so that other people's objects are not found.
    "search_path": "pg_catalog, pg_temp",
}
# Asked before the search path is set, so with the names and operators of PostgreSQL only.
FIND_SCHEMA = """
SELECT namespace.nspname::text
FROM pg_catalog.pg_class AS class
JOIN pg_catalog.pg_namespace AS namespace
    ON namespace.oid OPERATOR(pg_catalog.=) class.relnamespace
WHERE class.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('pgjobs_job')::oid
"""

TRANSPORT = {
    # The next one of several hosts, if this one is a standby. Not "read-write": that asks for
    # the default of transactions, which SERVER_SETTINGS decide. A session is asked for it, too,
    # when it is set up.
    **({"target_session_attrs": "primary"} if pq.version() >= 140000 else {}),
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


def connection_parameters(alias: str) -> dict[str, Any]:
    """Return what psycopg needs to open a connection of its own to the database of *alias*."""
    given = connections[alias].get_connection_params()
    ours = {"cursor_factory", "server_side_binding", "prepare_threshold", "context", "autocommit"}
    return TRANSPORT | {key: value for key, value in given.items() if key not in ours}


def find_schema(connection: psycopg.Connection[Any]) -> str | None:
    """Return the schema in which the session finds our tables, None if it does not."""
    found = connection.execute(FIND_SCHEMA, prepare=False).fetchone()
    return found[0] if found else None


def apply_settings(connection: psycopg.Connection[Any], settings: Mapping[str, str]) -> None:
    """Let these settings hold for the session, those that the server knows."""
    connection.execute(
        "SELECT pg_catalog.set_config(name, value, false)"
        " FROM unnest(%s::text[], %s::text[]) AS setting (name, value)"
        " WHERE pg_catalog.current_setting(name, true) IS NOT NULL",
        [list(settings), list(settings.values())],
        prepare=False,
    )
