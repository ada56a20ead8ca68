"""Occurrences to come that a person has skipped: which, what comes instead, and taking it back."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from django_pgjobs.models.schedules import Schedule
from django_pgjobs.occurrences.planning import occurrences
from django_pgjobs.queries.database import job_database
from django_pgjobs.schedules import control
from django_pgjobs.schedules.plans import rule_of
from django_pgjobs.status import OccurrenceOutcome
from django_pgjobs.values.moments import aware


def skipped_ahead(names: Iterable[str]) -> dict[str, list[datetime]]:
    """Return the instants to come that are skipped, in order, of each schedule that has some."""
    found: dict[str, list[datetime]] = {}
    rows = _skips_ahead().filter(schedule__in=list(names)).order_by("scheduled_for")
    for name, instant in rows.values_list("schedule", "scheduled_for"):
        found.setdefault(name, []).append(aware(instant))
    return found


def next_kept(row: Schedule, skipped: Collection[datetime]) -> datetime | None:
    """Return when the schedule runs next: its next occurrence that is none of *skipped*."""
    first = row.next_at and aware(row.next_at)
    if first is None or first not in skipped:
        return first
    try:
        rule = rule_of(row)
    except ValueError:
        return first
    following = islice(occurrences(rule, first), len(skipped))
    return next((each.at for each in following if each.at not in skipped), None)


def unskip(name: str) -> list[datetime]:
    """Undo the skips of all occurrences to come; return their instants.

    Raise LookupError if there is no such schedule.
    """
    with transaction.atomic(using=job_database()):
        control.get_schedule(name)
        rows = _skips_ahead().filter(schedule=name).order_by("scheduled_for").select_for_update()
        found = dict(rows.values_list("pk", "scheduled_for"))
        control.occurrence_rows().filter(pk__in=found).delete()
    return [aware(instant) for instant in found.values()]


def _skips_ahead() -> Any:
    rows = control.occurrence_rows()
    return rows.filter(outcome=OccurrenceOutcome.SKIPPED, scheduled_for__gt=Now())
