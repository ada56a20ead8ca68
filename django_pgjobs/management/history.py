"""What people did to a job or a batch: the admin's log, where its pages write that down."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple

from django.apps import apps
from django.db import ProgrammingError, connections, router, transaction
from django.db.models import Model

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.management.printing import Write, local_time
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.values.words import CONTROL

# The newest, as much as a terminal shows.
MAX_ENTRIES = 20
# That reading them may take, as on the page in the admin.
HISTORY_SECONDS = 2.0


class Entry(NamedTuple):
    """When somebody did something, who, and what and why."""

    at: datetime
    by: str
    text: str


def list_history(model: type[Model], pk: int) -> list[Entry] | None:
    """Return what people did to a row, the newest first, None if that takes too long.

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
        with _within_time(router.db_for_read(log)):
            found = list(entries.select_related("user").order_by("-action_time")[:MAX_ENTRIES])
    except TooSlow:
        return None
    except ProgrammingError:
        return []
    return [
        Entry(each.action_time, each.user.get_username(), each.get_change_message())
        for each in found
    ]


def _within_time(alias: str) -> AbstractContextManager[object]:
    """Return a block in which the log is read: no index finds the entries of one row in it."""
    is_ours = connections[alias].vendor == "postgresql"
    return time_budget(alias, HISTORY_SECONDS) if is_ours else transaction.atomic(using=alias)


def write_history(write: Write, of_whom: str, entries: Iterable[Entry] | None) -> None:
    """Write a line for each entry, if there are some."""
    if entries is None:
        write(f"the history{of_whom} could not be found in time.")
        return
    lines = [f"  {local_time(each.at)}  {each.by}  {each.text}" for each in entries]
    if lines:
        write(f"history{of_whom}, newest first")
        for line in lines:
            write(line.translate(CONTROL))
