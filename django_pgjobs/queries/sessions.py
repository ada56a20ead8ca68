"""Bringing a session that a job used back to the state of a new one."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

# One round trip. DISCARD ALL would also drop prepared statements, which the driver counts on.
RESET_SESSION = (
    "RESET ALL; RESET SESSION AUTHORIZATION; SELECT pg_advisory_unlock_all();"
    " UNLISTEN *; CLOSE ALL; DISCARD TEMP"
)


def reset_session(
    connection: psycopg.Connection[Any], *, time_zone: str | None, role: str | None
) -> None:
    """Undo what SQL can do to a session, then set what Django sets on a new one.

    *time_zone* and *role* are those of the project's settings.
    """
    connection.execute(RESET_SESSION, prepare=False)
    if time_zone and connection.info.parameter_status("TimeZone") != time_zone:
        connection.execute("SELECT set_config('TimeZone', %s, false)", [time_zone], prepare=False)
    if role:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)), prepare=False)
