"""Bringing a session that a job used back to the state of a new one."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

# DISCARD ALL would also drop prepared statements, which the driver counts on.
RESET_SESSION = (
    "RESET ALL; RESET SESSION AUTHORIZATION; SELECT pg_advisory_unlock_all();"
    " UNLISTEN *; CLOSE ALL; DISCARD TEMP"
)


def reset_session(
    connection: psycopg.Connection[Any], *, time_zone: str | None, role: str | None
) -> None:
    """Undo what SQL can do to a session, then set what Django sets on a new one.

    *time_zone* and *role* are those of the project's settings. All in one round trip.
    """
    statements: list[sql.Composable] = [sql.SQL(RESET_SESSION)]
    if time_zone:
        statements.append(sql.SQL("SET TimeZone TO {}").format(sql.Literal(time_zone)))
    if role:
        statements.append(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    connection.execute(sql.SQL("; ").join(statements), prepare=False)
