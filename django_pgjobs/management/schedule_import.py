"""`manage.py jobs schedules import`: rows of another scheduler become rows of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError
from django.db import transaction
from django.utils import timezone

from django_pgjobs.declaring.schedules import declared_schedules
from django_pgjobs.management.printing import Write
from django_pgjobs.models import Schedule
from django_pgjobs.queries.database import job_database, rows_of
from django_pgjobs.schedules.importing import (
    Imported,
    import_rows,
    row_of_celery_beat,
    row_of_django_q,
)
from django_pgjobs.schedules.words import when_of
from django_pgjobs.values.moments import aware
from django_pgjobs.values.words import counted

# Where their rows are, and what makes rows of ours of them.
SOURCES: dict[str, tuple[str, str, Callable[[Any], Schedule]]] = {
    "celery-beat": ("django_celery_beat", "PeriodicTask", row_of_celery_beat),
    "django-q2": ("django_q", "Schedule", row_of_django_q),
}


def import_schedules(write: Write, source: str, *, is_dry: bool) -> None:
    """Import their rows, or say what would be imported; raise CommandError if some cannot be."""
    app, model, row_of = SOURCES[source]
    try:
        theirs = apps.get_model(app, model)._default_manager.order_by("pk")
    except LookupError:
        raise CommandError(f"expected {app!r} in INSTALLED_APPS: its rows are read.") from None
    found = import_rows(theirs, row_of)
    refused = 0
    with transaction.atomic(using=job_database()):
        for each in found:
            said = _made(each, is_dry=is_dry)
            refused += said.startswith("not taken")
            write(f"{each.name}: {said}")
    if refused:
        raise CommandError(f"{refused} of {len(found)} schedules could not be taken.")


def _made(each: Imported, *, is_dry: bool) -> str:
    if each.row is None:
        return f"not taken: {each.said}" if each.is_wanted else each.said
    if each.name in declared_schedules():
        return "not taken: the code declares a schedule of this name."
    rows = rows_of(Schedule)
    if rows.filter(name=each.name).exists():
        return "left as it is: there is one of this name"
    if not is_dry:
        each.row.save(using=job_database(), force_insert=True)
    return f"{'would be ' if is_dry else ''}made: {', '.join(_told(each.row, each.dropped))}"


def _told(row: Schedule, dropped: Iterable[str]) -> Iterator[str]:
    """Yield what a row of ours says, and what theirs says that ours does not."""
    yield when_of(row)
    for word, instant in (("starts", row.starts_at), ("ends", row.ends_at)):
        if instant is not None:
            yield f"{word} {timezone.localtime(aware(instant)).isoformat(' ', 'seconds')}"
    if row.max_runs is not None:
        yield counted(row.max_runs, "run")
    if row.paused_at is not None:
        yield "paused"
    yield from (f"without its {each}" for each in dropped)
