"""What roles need rights on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch


class DatabaseObject(NamedTuple):
    """A role, or something of ours; *quoted* is its name in a statement.

    *table* is the one whose rows are numbered by a sequence.
    """

    kind: str
    name: str
    quoted: str
    table: str | None


def list_objects(cursor: Cursor, roles: Sequence[str]) -> list[DatabaseObject]:
    """Return *roles* with their quoted names, and all objects of ours; these only if migrated."""
    return [DatabaseObject._make(row) for row in fetch(cursor, "list_objects", {"roles": roles})]
