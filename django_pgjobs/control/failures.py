"""Failed jobs by what went wrong: one group of each task, exception class and message."""

from __future__ import annotations

import re

from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.failures import FailureRow, list_failures

# Failed jobs that are looked at. Their texts are long, 10 microseconds each and more.
MAX_JOBS = 5_000
MAX_GROUPS = 50
# Longer ago than any retention.
EVER_SECONDS = 100 * 365.25 * 86_400


def list_groups(cursor: Cursor, *, max_jobs: int, newest_first: bool) -> list[FailureRow]:
    """Return the MAX_GROUPS largest groups, or the newest, of the *max_jobs* that failed last."""
    return list_failures(
        cursor,
        seconds=EVER_SECONDS,
        max_jobs=max_jobs,
        max_groups=MAX_GROUPS,
        newest_first=newest_first,
    )


def message_of(row: FailureRow) -> str:
    """Return the message of one of the jobs, else what all messages have."""
    return row.message.strip() or row.error_message


def class_name(path: str) -> str:
    """Return the name of an exception's class without its module: `Order.DoesNotExist`.

    Which part of a path is a module is guessed by the first capital: nothing is imported.
    """
    within = re.search(r"(?:^|\.)([A-Z]\w*(?:\.\w+)+)$", path)
    return within[1] if within else path.rpartition(".")[2] or path
