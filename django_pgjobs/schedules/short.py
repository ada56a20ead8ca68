"""The transaction of a turn: its statements are short, and if it stands still it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.locks import limit_waits

# How long a statement may run, and wait for a lock: an enqueue may meet the unique key of a
# transaction that is open, and others of the turn would wait with it.
STATEMENT_SECONDS, LOCK_SECONDS = 5.0, 0.5
# How long it may keep its locks and send nothing. A process that was stopped would keep them for
# ever; keys and receivers of an enqueue, which are the project's code, have so long.
STILL_SECONDS = 10.0


@contextmanager
def short_transaction() -> Iterator[Cursor]:
    """Give a cursor of a transaction that holds up others for a short time only.

    Within another transaction it is a savepoint without bounds, because those would last until the
    end of the other one, such as that of a TestCase.
    """
    database = job_database()
    is_own = not connections[database].in_atomic_block
    with transaction.atomic(using=database), connections[database].cursor() as cursor:
        if is_own:
            limit_waits(
                cursor,
                STATEMENT_SECONDS,
                lock_seconds=LOCK_SECONDS,
                still_seconds=STILL_SECONDS,
            )
        yield cursor
