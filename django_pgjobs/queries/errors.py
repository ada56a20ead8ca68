"""What an error of the database means to the worker.

psycopg's classes do not tell: a lock that was not to be had and a broken connection are both an
OperationalError. The server's code does, and an error without one comes from the client's side of
the connection.
"""

from __future__ import annotations

from enum import Enum

import psycopg
from django.db import Error, InterfaceError, OperationalError


class Trouble(Enum):
    """What to do after an error."""

    # The connection is unusable, or the server has no room: begin again on another one, later.
    LOST = "lost"
    # Another transaction came in between and ours was rolled back: repeat it.
    CROSSED = "crossed"
    # Somebody held a lock for too long, or a statement took too long: go on with the rest.
    LOCKED = "locked"
    # The server refuses what a row holds, or its outcome: find the row.
    REFUSED = "refused"
    # The schema lacks what the statement names, or our role a right: no row is to blame, and it
    # may be there later.
    MISFIT = "misfit"

    @property
    def spares_rest(self) -> bool:
        """May the rest of what was sent work, without some row or without some statement?"""
        return self in (Trouble.LOCKED, Trouble.REFUSED, Trouble.MISFIT)


# Serialization failure, deadlock.
CROSSED = ("40001", "40P01")
# A lock that was not to be had in time, a statement that was cancelled.
LOCKED = ("55P03", "57014")
# Classes of: connections, their authorization, transactions, resources, operators, system.
LOST_CLASSES = ("08", "28", "25", "53", "57", "58")
# Connections that break, servers that shut down.
ENDED = ("08", "57P")
# The server has ended the session because its transaction stood still.
STOOD_STILL = "25P03"
# The server takes no writes any more; prepared statements are gone, or there already.
STALE = ("25006", "26000", "42P05")
# Class of what the schema or the role lacks. Row security says one of its codes of rows: a right
# is missing where this function of PostgreSQL looked for it.
MISFIT_CLASS, FORBIDDEN, RIGHTS_CHECK = "42", "42501", "aclcheck_error"
# What PostgreSQL calls "cached plan must not change result type", in any language.
PLAN_CHECK = "RevalidateCachedQuery"


class CommitRefused(psycopg.DatabaseError):
    """The server has refused to commit statements that travelled together."""


def is_stale(error: psycopg.Error) -> bool:
    """Has the session become unusable, so that a new one may work?"""
    return not _is_of_function(error) and (
        error.sqlstate in STALE or error.diag.source_function == PLAN_CHECK
    )


def _is_of_function(error: psycopg.Error) -> bool:
    """Did it happen in a function, such as a trigger of the project's?

    Whatever its code says then, it is about a row, or about another server; not about ours. An
    error that ends the session is about the session wherever it happened.
    """
    return bool(error.diag.context) and error.diag.severity_nonlocalized == "ERROR"


def trouble_of(error: psycopg.Error) -> Trouble:
    """Return what the error of a statement means."""
    code = error.sqlstate
    if code in CROSSED:
        return Trouble.CROSSED
    if code in LOCKED:
        return Trouble.LOCKED
    if code is None:
        # Of psycopg itself; a value that it cannot send, for one, is no loss of the connection.
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return Trouble.LOST if is_lost else Trouble.REFUSED
    if _is_of_function(error):
        return Trouble.REFUSED
    if is_stale(error) or code.startswith(LOST_CLASSES):
        return Trouble.LOST
    is_of_row = code == FORBIDDEN and error.diag.source_function != RIGHTS_CHECK
    is_misfit = code.startswith(MISFIT_CLASS) and not is_of_row
    return Trouble.MISFIT if is_misfit else Trouble.REFUSED


def is_too_large(error: psycopg.Error) -> bool:
    """Does the server refuse JSON of more than 1 MiB?"""
    return error.diag.constraint_name == "pgjobs_payload_is_at_most_1_mib"


def is_untranslatable(error: psycopg.Error) -> bool:
    """Does the encoding of the database lack a character?

    PostgreSQL up to 15 says of SQL_ASCII that the feature is not supported.
    """
    is_lacking = isinstance(error, psycopg.errors.UntranslatableCharacter)
    return is_lacking or error.diag.source_function == "pg_unicode_to_server"


def is_undone(error: psycopg.Error) -> bool:
    """Has the server said that a statement failed? Else, without an answer, it may be done."""
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    # Where a session ends, that may have come after the commit.
    return cause.sqlstate is not None and not cause.sqlstate.startswith(ENDED)


def is_of_the_moment(error: BaseException) -> bool:
    """Is it an error of a database, any of the project's, that may be gone at the next try?"""
    cause = error.__cause__ if isinstance(error, Error) else error
    if isinstance(cause, psycopg.Error):
        return trouble_of(cause) not in (Trouble.REFUSED, Trouble.MISFIT)
    return isinstance(error, OperationalError | InterfaceError)
