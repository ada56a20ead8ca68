"""Writing the schedules of the code into rows, when a worker starts.

The columns follow the code except for those that a person changed. A row is written only if the
code says something else than it did, so workers of two releases write once each.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction

from django_pgjobs.declaring.schedules import declared_schedules
from django_pgjobs.models.schedules import Schedule
from django_pgjobs.queries.database import job_database

INSTANTS = ("starts_at", "ends_at")


class Synced(NamedTuple):
    """The names of schedules that were new, that changed, and that came back."""

    new: list[str]
    changed: list[str]
    returned: list[str]


def sync_schedules() -> Synced:
    """Write what this process declares into the table; in a transaction of its own."""
    declared = {name: each.columns() for name, each in declared_schedules().items()}
    synced = Synced([], [], [])
    if not declared:
        return synced
    database = job_database()
    with transaction.atomic(using=database):
        known = set(_rows(database, declared).values_list("name", flat=True))
        new = [
            Schedule(name=name, declared=columns, **_values(columns))
            for name, columns in declared.items()
            if name not in known
        ]
        # Another worker may be doing the same.
        Schedule._default_manager.using(database).bulk_create(new, ignore_conflicts=True)
        synced.new.extend(each.name for each in new)
        rows = _rows(database, declared).filter(name__in=known).order_by("name")
        for row in rows.select_for_update():
            _sync(row, declared[row.name], synced)
    return synced


def changed_columns(row: Schedule) -> list[str]:
    """Return the columns in which a row is other than its code declares, in order."""
    return sorted(_differing(row, row.declared)) if isinstance(row.declared, dict) else []


def follow_code(row: Schedule) -> None:
    """Let a schedule be as its code declares it; raise ValueError if none does."""
    if not isinstance(row.declared, dict):
        raise ValueError(f"schedule {row.name} is not declared by code.")
    values = {**_values(row.declared), "changed_fields": []}
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))


def _differing(row: Schedule, columns: Mapping[str, Any]) -> list[str]:
    return [name for name, value in _values(columns).items() if getattr(row, name) != value]


def _rows(database: str, names: Mapping[str, Any]) -> Any:
    return Schedule._default_manager.using(database).filter(name__in=list(names))


def _sync(row: Schedule, columns: Mapping[str, Any], synced: Synced) -> None:
    """Bring one row up to date, if it is not."""
    values: dict[str, Any] = {}
    if row.declared != columns:
        if row.declared is None:
            # A person made one of this name before: what they chose stays.
            kept = _differing(row, columns)
            values["changed_fields"] = sorted({*row.changed_fields, *kept})
        else:
            kept = row.changed_fields
        values["declared"] = columns
        values |= {name: value for name, value in _values(columns).items() if name not in kept}
        synced.changed.append(row.name)
    if row.retired_at is not None:
        values["retired_at"] = None
        synced.returned.append(row.name)
    for name, value in values.items():
        setattr(row, name, value)
    if values:
        row.save(update_fields=list(values))


def _values(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns as the model holds them."""
    return {
        name: datetime.fromisoformat(value) if name in INSTANTS and value else value
        for name, value in columns.items()
    }
