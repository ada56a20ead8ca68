"""Writing the schedules of the code into rows, when a worker starts.

Task and arguments follow the code; time and policies except for those that a person changed. A row
is written only if the code says something else than it did, so workers of two releases write once
each. A row that somebody has locked is left for later: it holds up no other schedule.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.db import Error as DatabaseError
from django.db import transaction

from django_pgjobs.declaring.schedules import declared_schedules
from django_pgjobs.models.schedules import Schedule
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.schedules.short import short_transaction
from django_pgjobs.values.moments import aware

INSTANTS = ("starts_at", "ends_at")
# What nobody changes but the code: another task's arguments are of no use to this one.
OF_CODE = ("task_path", "args", "kwargs")


class Adopted(NamedTuple):
    """A schedule that a person had made under a name that the code declares now."""

    name: str
    their_task: str
    our_task: str


class Synced(NamedTuple):
    """The names of schedules that were new, that changed, and that came back.

    Those that a person had made before; and those that somebody has locked, to be tried again.
    """

    new: list[str]
    changed: list[str]
    returned: list[str]
    adopted: list[Adopted]
    locked: list[str]


def sync_schedules() -> Synced:
    """Write what this process declares into the table; in a transaction of its own."""
    declared = {name: each.columns() for name, each in declared_schedules().items()}
    synced = Synced([], [], [], [], [])
    if not declared:
        return synced
    database = job_database()
    with short_transaction():
        known = {row.name: row for row in _rows(database, declared)}
        missing = {name: columns for name, columns in declared.items() if name not in known}
        if missing:
            _insert(database, missing, synced)
        stale = {row.name for row in known.values() if _is_stale(row, declared[row.name])}
        rows = _rows(database, stale).order_by("name")
        for row in rows.select_for_update(skip_locked=True) if stale else []:
            _sync(row, declared[row.name], synced)
            stale.discard(row.name)
        synced.locked.extend(sorted(stale))
    return synced


def changed_columns(row: Schedule) -> list[str]:
    """Return the columns in which a row is other than its code declares, in order."""
    return sorted(_differing(row, row.declared))


def follow_code(name: str) -> None:
    """Let a schedule be as its code declares it; raise ValueError if none does.

    The row is locked: beside a worker that writes what new code says, the later of both counts.
    """
    database = job_database()
    with transaction.atomic(using=database):
        row = _rows(database, [name]).select_for_update().first()
        if row is None or not isinstance(row.declared, dict):
            raise ValueError(f"schedule {name} is not declared by code.")
        values = {**_values(row.declared), "changed_fields": []}
        for column, value in values.items():
            setattr(row, column, value)
        row.save(update_fields=list(values))


def _rows(database: str, names: Any) -> Any:
    return Schedule._default_manager.using(database).filter(name__in=list(names))


def _insert(database: str, missing: Mapping[str, Mapping[str, Any]], synced: Synced) -> None:
    """Insert rows; another worker may be doing the same."""
    new = [
        Schedule(name=name, declared=columns, **_values(columns))
        for name, columns in missing.items()
    ]
    try:
        with transaction.atomic(using=database):
            Schedule._default_manager.using(database).bulk_create(new, ignore_conflicts=True)
    except DatabaseError as error:
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error) or trouble_of(cause) is not Trouble.LOCKED:
            raise
        synced.locked.extend(missing)
    else:
        synced.new.extend(missing)


def _is_stale(row: Schedule, columns: Mapping[str, Any]) -> bool:
    is_other = row.declared != columns or row.retired_at is not None
    return is_other or any(getattr(row, name) != columns[name] for name in OF_CODE)


def _sync(row: Schedule, columns: Mapping[str, Any], synced: Synced) -> None:
    """Bring one row up to date, if it is not."""
    # As it is now: another worker may have written it since.
    values = {name: columns[name] for name in OF_CODE if getattr(row, name) != columns[name]}
    if row.declared != columns:
        # What a person has chosen stays: in a row of their own all that is other than the code
        # says, in one of the code what is other than it said.
        is_theirs = row.declared is None
        kept = {*row.changed_fields, *_differing(row, columns if is_theirs else row.declared)}
        kept -= set(OF_CODE)
        if is_theirs and set(OF_CODE).intersection(_differing(row, columns)):
            synced.adopted.append(Adopted(row.name, row.task_path, columns["task_path"]))
        values |= {name: value for name, value in _values(columns).items() if name not in kept}
        values |= {"declared": columns, "changed_fields": sorted(kept)}
    if values:
        synced.changed.append(row.name)
    if row.retired_at is not None:
        values["retired_at"] = None
        synced.returned.append(row.name)
    for name, value in values.items():
        setattr(row, name, value)
    if values:
        row.save(update_fields=list(values))


def _differing(row: Schedule, columns: Any) -> list[str]:
    """Return the columns in which a row is other than *columns*, which a row may hold."""
    if not isinstance(columns, dict):
        return []
    try:
        values = _values(columns)
    except (TypeError, ValueError):
        return []
    # Another release may declare a column that is not known here.
    return [name for name, value in values.items() if _value_of(row, name, value) != value]


def _value_of(row: Schedule, name: str, unknown: Any) -> Any:
    value = getattr(row, name, unknown)
    return aware(value) if isinstance(value, datetime) else value


def _values(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns as the model holds them."""
    return {
        name: datetime.fromisoformat(value) if name in INSTANTS and value else value
        for name, value in columns.items()
    }
