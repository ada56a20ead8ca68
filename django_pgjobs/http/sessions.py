"""Statements on Django's connection, as a project's own code sends them when it enqueues.

So what a project has put into the way holds here, too: routers, triggers, signals. Nobody else's
transaction is open in a view of ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from django.db import OperationalError, transaction

from django_pgjobs.exceptions import (
    BatchSealed,
    DuplicateJob,
    DuplicateWorkflow,
    TooSlow,
    UnknownBatch,
)
from django_pgjobs.http.pool import PAUSE_SECONDS, TRIES, crossed
from django_pgjobs.http.problems import Problem, not_found, unavailable
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.errors import Trouble, trouble_of

# How long the statements of a list may take.
LIST_SECONDS = 2.0

# Neither the client nor its body is wrong: something else is there, or is not.
CONFLICT_ERRORS = (BatchSealed, DuplicateJob, DuplicateWorkflow, UnknownBatch)

T = TypeVar("T")


def in_transaction(do: Callable[[], T]) -> T:
    """Do as `until_done`, in one transaction."""

    def do_all() -> T:
        with transaction.atomic(using=job_database()):
            return do()

    return until_done(do_all)


def until_done(do: Callable[[], T]) -> T:
    """Return what *do* returns; call it again if others cross what it does.

    *do* is one transaction, and is in no other: batches are counted at its end. Raise Problem for
    what a batch does not take, and one with 503 if it is crossed too often.
    """
    tried = 0
    while True:
        try:
            with _told_as_problems():
                return do()
        except OperationalError as error:
            cause = error.__cause__
            if not isinstance(cause, psycopg.Error) or trouble_of(cause) is not Trouble.CROSSED:
                raise
            tried += 1
            if tried == TRIES:
                raise crossed() from error
        time.sleep(PAUSE_SECONDS * tried)


@contextmanager
def in_bounded_time() -> Iterator[None]:
    """Let what a list reads take two seconds; raise Problem (503) beyond that."""
    try:
        with time_budget(job_database(), LIST_SECONDS):
            yield
    except TooSlow as error:
        raise unavailable(f"It took longer than {LIST_SECONDS:g} s. Ask for less.") from error


@contextmanager
def _told_as_problems() -> Iterator[None]:
    try:
        yield
    except UnknownBatch as error:
        raise not_found(str(error)) from error
    except BatchSealed as error:
        raise Problem("sealed", detail=str(error)) from error
    except (DuplicateJob, DuplicateWorkflow) as error:
        raise Problem("duplicate", detail=str(error)) from error
