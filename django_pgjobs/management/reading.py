"""Reading what commands print, as pages of the admin do: within a time, by a walk or not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import connections

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database

# Seconds one statement may take: more than on a page, for nobody else waits for it.
READING_SECONDS = 15.0


@contextmanager
def reading(*, walks: bool = False) -> Iterator[Cursor]:
    """Yield a cursor whose statements may take so long; raise CommandError if one takes longer.

    *walks* is what `time_budget` says.
    """
    alias = job_database()
    try:
        with (
            time_budget(alias, READING_SECONDS, walks=walks),
            connections[alias].cursor() as cursor,
        ):
            yield cursor
    except TooSlow as error:
        raise CommandError(
            f"the database did not answer within {READING_SECONDS:g} s, or is locked."
        ) from error
