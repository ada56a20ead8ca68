"""What roles need rights on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch


class DatabaseObject(NamedTuple):
    """A role, or something of ours; *quoted* is its name in a statement.

    *table* is the one whose rows are numbered by a sequence, *oid* the number of ours.
    """

    kind: str
    name: str
    quoted: str
    table: str | None
    oid: int | None


class Right(NamedTuple):
    """A right on an object, or on one of its columns."""

    on: DatabaseObject
    name: str
    column: str | None = None


def list_objects(cursor: Cursor, roles: Sequence[str]) -> list[DatabaseObject]:
    """Return *roles* with their quoted names, and all objects of ours; these only if migrated."""
    return [DatabaseObject._make(row) for row in fetch(cursor, "list_objects", {"roles": roles})]


def list_missing_rights(cursor: Cursor, wanted: Sequence[Right]) -> tuple[str, list[Right]]:
    """Return the quoted name of the current role, and what it lacks; the name only if it does."""
    params = {
        "kinds": [right.on.kind for right in wanted],
        "ids": [right.on.oid for right in wanted],
        "rights": [right.name for right in wanted],
        "columns": [right.column for right in wanted],
    }
    rows = fetch(cursor, "list_missing_rights", params)
    return (rows[0][1] if rows else ""), [wanted[place - 1] for place, _ in rows]
