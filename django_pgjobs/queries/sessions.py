"""Sessions that jobs use: which there are, noticing that one was used, and resetting it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql
from psycopg.pq import ExecStatus

from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.errors import is_stale

# What DISCARD ALL does, except for what the driver's own prepared statements need. The first
# three before the others: nobody else's function is called, by nobody else's name.
RESET_SESSION = (
    "CLOSE ALL; RESET SESSION AUTHORIZATION; RESET ALL;"
    " SELECT pg_catalog.pg_advisory_unlock_all(); UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES"
)


class ConnectionsOfThread:
    """Django's connections of the thread that made this, most of them perhaps not open.

    Each iteration, in any thread, gives those that there are by then. Django lists what the
    settings name, which makes those of all threads; a job may make the settings forget one that is
    open. That takes a tenth of a short job, too.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[str, object] = vars(cast(Any, connections)._connections._storage)

    def __iter__(self) -> Iterator[Any]:
        # A copy in one step, because its thread may open others meanwhile. Among them is what async
        # code has made, in a value of another kind.
        made = list(self._made.values())
        return iter([each for each in made if isinstance(each, BaseDatabaseWrapper)])


def reset_session(
    connection: psycopg.Connection[Any], *, time_zone: str | None, role: str | None
) -> None:
    """Undo what SQL can do to a session, then set what Django sets on a new one.

    *time_zone* and *role* are those of the project's settings. All in one round trip.
    """
    # A driver that prepares statements counts on those that it has prepared.
    drops_prepared = connection.prepare_threshold is None
    # The driver's own way takes four times as long, because it builds each result.
    result = connection.pgconn.exec_(_reset_text(time_zone, role, drops_prepared=drops_prepared))
    if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        raise psycopg.OperationalError(result.error_message.decode("utf-8", "replace"))


# Composing it takes longer than running it.
@lru_cache
def _reset_text(time_zone: str | None, role: str | None, *, drops_prepared: bool) -> bytes:
    statements: list[sql.Composable] = [sql.SQL(RESET_SESSION)]
    if drops_prepared:
        statements.append(sql.SQL("DEALLOCATE ALL"))
    if time_zone:
        statements.append(sql.SQL("SET TimeZone TO {}").format(sql.Literal(time_zone)))
    if role:
        statements.append(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    return sql.SQL("; ").join(statements).as_bytes(None)


def takes_no_writes(raw: psycopg.Connection[Any]) -> bool:
    """Does a driver's connection begin read-only transactions, or lead to a standby?

    As far as the server has told by itself, with its last answer; a pooler may keep that back.
    """
    told = raw.pgconn.parameter_status
    return b"on" in (told(b"default_transaction_read_only"), told(b"in_hot_standby"))


def set_jit(cursor: Cursor, value: str) -> str:
    """Set whether the session compiles statements; return what was set before."""
    cursor.execute("SELECT current_setting('jit'), set_config('jit', %s, FALSE)", [value])
    [(before, _)] = cursor.fetchall()
    return str(before)


class Usage:
    """Notes whether anything was sent over a driver's connection, and whether to close it.

    It stands where the driver waits for every answer, so it sees what goes past Django as
    well: cursors in the server, COPY, a cursor that some module has kept.
    """

    def __init__(self, raw: Any) -> None:
        """Watch the driver's connection *raw* from now on."""
        self.is_used = False
        self.is_stale = False
        self._driver_state = _driver_state(raw)
        wait = raw.wait

        def wait_and_note(*args: Any, **kwargs: Any) -> Any:
            self.is_used = True
            try:
                return wait(*args, **kwargs)
            except psycopg.Error as error:
                self.is_stale = self.is_stale or is_stale(error)
                raise

        raw.wait = wait_and_note
        raw.pgjobs_usage = self

    def is_altered(self, raw: Any) -> bool:
        """Has the driver's connection changed in what only the driver knows?"""
        return _driver_state(raw) != self._driver_state


def is_watched(raw: Any) -> bool:
    """Is the use of a driver's connection noted already?"""
    return hasattr(raw, "pgjobs_usage")


def usage_of(raw: Any) -> Usage:
    """Return the usage of a driver's connection; begin to watch it if it is not watched."""
    if not is_watched(raw):
        Usage(raw).is_used = True
    usage: Usage = raw.pgjobs_usage
    return usage


def _driver_state(raw: Any) -> tuple[Any, ...]:
    return (
        raw.isolation_level,
        raw.read_only,
        raw.deferrable,
        raw.prepare_threshold,
        raw.row_factory,
    )
