"""Statements that lock jobs on Django's connections, while workers move some of these.

A row that is locked is passed over. But PostgreSQL raises a serialization error for one that a
commit moved to the other partition after the statement began and before it came to the row,
whatever the statement says of locked rows. The statement that follows sees where the row is now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import OperationalError, connections, transaction
from psycopg.errors import SerializationFailure

from django_pgjobs.queries.cursor import fetch

# After so many conflicts other transactions are not the cause: a trigger raises the error, or the
# transaction keeps its snapshot.
TRIES = 10


def fetch_again_if_crossed(cursor: Any, name: str, params: Mapping[str, Any]) -> list[Any]:
    """Send statement *name* until no other transaction crosses it, and return its rows.

    *cursor* is one of Django's. The transaction that is open there goes on after an error.
    """
    tries = 1
    while True:
        try:
            with transaction.atomic(using=cursor.db.alias):
                return fetch(cursor, name, params)
        except OperationalError as error:
            is_crossed = isinstance(error.__cause__, SerializationFailure)
            if not is_crossed or tries == TRIES:
                raise
        tries += 1


@contextmanager
def seeing_commits(database: str) -> Iterator[None]:
    """Open a transaction whose statements see what others commit meanwhile, unless one is open.

    The project, or its role, may have another isolation as the default: by that a statement fails
    if one of its rows was changed since the first one.
    """
    connection = connections[database]
    is_own = connection.get_autocommit()
    with transaction.atomic(using=database):
        if is_own:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        yield
