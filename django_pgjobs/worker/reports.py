"""What attempts have reported of their progress and is not written yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.db import DatabaseError, connections, transaction

from django_pgjobs.queries import jobs
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

Report = tuple[Attempt, str]


def unwritten(attempts: Iterable[Attempt]) -> list[Report]:
    """Return what attempts have reported since their progress was written."""
    return [(a, a.progress) for a in attempts if a.progress is not a.reported]


def send_reports(cursor: Cursor, reports: Sequence[Report]) -> None:
    """Send reports; the rows are the ids of the jobs whose attempts still owned them."""
    jobs.send_progress(cursor, [(a.id, a.claim, a.longest_pause, text) for a, text in reports])


def write_last(attempt: Attempt, database: str) -> None:
    """Write the last report of an attempt that ends in the open transaction on *database*.

    A report that the server refuses is dropped, and logged.
    """
    if reports := unwritten([attempt]):
        try:
            with transaction.atomic(using=database), connections[database].cursor() as cursor:
                send_reports(cursor, reports)
        except DatabaseError as error:
            log_refused(attempt, error)


def log_refused(attempt: Attempt, error: Exception) -> None:
    """Log that the server refused what an attempt has reported."""
    logger.of(attempt).error("its progress cannot be written: %s", error)
