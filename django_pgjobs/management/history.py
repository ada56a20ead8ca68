"""What people did to a job or a batch: the admin's log, where its pages write that down."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from django.apps import apps
from django.db import ProgrammingError, router, transaction
from django.db.models import Model

from django_pgjobs.management.printing import Write, local_time
from django_pgjobs.values.words import CONTROL

# The newest, as much as a terminal shows.
MAX_ENTRIES = 20


class Entry(NamedTuple):
    """When somebody did something, who, and what and why."""

    at: datetime
    by: str
    text: str


def list_history(model: type[Model], pk: int) -> list[Entry]:
    """Return what people did to a row, the newest first.

    That is nothing in a project without the admin, or for a role that may not read its log.
    """
    if not apps.is_installed("django.contrib.admin"):
        return []
    log: Any = apps.get_model("admin", "LogEntry")
    entries = log.objects.filter(
        content_type__app_label=model._meta.app_label,
        content_type__model=model._meta.model_name,
        object_id=str(pk),
    )
    try:
        with transaction.atomic(using=router.db_for_read(log)):
            found = list(entries.select_related("user").order_by("-action_time")[:MAX_ENTRIES])
    except ProgrammingError:
        return []
    return [
        Entry(each.action_time, each.user.get_username(), each.get_change_message())
        for each in found
    ]


def write_history(write: Write, of_whom: str, entries: Iterable[Entry]) -> None:
    """Write a line for each entry, if there are some."""
    lines = [f"  {local_time(each.at)}  {each.by}  {each.text}" for each in entries]
    if lines:
        write(f"history{of_whom}, newest first")
        for line in lines:
            write(line.translate(CONTROL))
