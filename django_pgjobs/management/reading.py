"""Reading what commands print, as pages of the admin do: within a time, by a walk or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from django.core.management.base import CommandError
from django.db import OperationalError, connections

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.management.printing import Write
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.queue_pages import list_queues
from django_pgjobs.warnings.listing import all_checks, list_warnings
from django_pgjobs.warnings.notices import Notice
from django_pgjobs.warnings.of_queues import Why
from django_pgjobs.warnings.situation import Situation, read_situation

T = TypeVar("T")

# Seconds one statement may take: more than on a page, for nobody else waits for it.
READING_SECONDS = 15.0
# Between two tries while the database is away.
AWAY_SECONDS = 1.0


class Slow(CommandError):
    """The database took too long; perhaps a table is locked."""


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
        raise Slow(
            f"the database did not answer within {READING_SECONDS:g} s, or is locked."
        ) from error


def read_warnings(why: Why | None = None) -> tuple[Situation, list[Notice]]:
    """Return what is wrong now, muted or not, and what says so; *why* says why a job waits."""
    with reading(walks=True) as cursor:
        situation = read_situation(cursor, list_queues(cursor).rows, max_workers=0)
    # These load the modules of tasks, without which the queues of remote tasks are unknown.
    problems = all_checks(situation, job_database())
    return situation, list_warnings(situation, problems, why)


def read_again(read: Callable[[], T], tell: Write) -> T:
    """Return what *read* reads, for a command that goes on until it is stopped.

    While the database is away, or a table is locked, each is told once, and tried each second.
    """
    told: set[str] = set()
    while True:
        try:
            return read()
        except (Slow, OperationalError) as error:
            cause = error.__cause__
            is_lost = isinstance(cause, psycopg.Error) and trouble_of(cause) is Trouble.LOST
            if not (is_lost or isinstance(error, Slow)):
                raise
            what = "the database is away, trying again: " if is_lost else "trying again: "
            if what not in told:
                tell(f"{what}{' '.join(str(error).split())}")
                told.add(what)
        connections[job_database()].close()
        time.sleep(AWAY_SECONDS)
