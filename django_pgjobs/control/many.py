"""Changing all jobs that a QuerySet finds, 1,000 at a time.

Which jobs those are is read once, before the first is changed: none that comes later is among them.
Each page is a transaction of its own, or all are part of the caller's.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import Any

from django.db import connections
from django.db.models import Model, QuerySet

from django_pgjobs.control.changing import Change, Effect
from django_pgjobs.control.lifecycle import LOCKED_GAP_SECONDS, LOCKED_SECONDS
from django_pgjobs.exceptions import JobError
from django_pgjobs.queries.crossing import seeing_commits
from django_pgjobs.queries.database import job_database
from django_pgjobs.values.words import counted

# Jobs that one transaction changes.
PAGE_JOBS = 1_000


def change_all(found: QuerySet[Any], statuses: Collection[str], change: Change) -> int:
    """Change the jobs of a QuerySet that have one of *statuses*; return how many were changed.

    Raise JobError as `change_pages` does.
    """
    ids = find_ids(found, statuses)
    return sum(change_pages(found.model, ids, statuses, change))


def find_ids(found: QuerySet[Any], statuses: Collection[str]) -> list[int]:
    """Return the ids of those jobs of a QuerySet that have one of *statuses*, in its order.

    Raise TypeError after values() and the like: what that groups by, only it knows.
    """
    if found._fields is not None:  # type: ignore[attr-defined]
        raise TypeError("expected jobs, got a QuerySet of values. Change them before values().")
    found = found.using(job_database())
    if not _compares_rows(found):
        found = found.filter(status__in=sorted(statuses))
    rows = found.values_list("pk", "status")
    return list(dict.fromkeys(job_id for job_id, status in rows if status in statuses))


def _compares_rows(found: QuerySet[Any]) -> bool:
    """Does it depend on its other rows which jobs a QuerySet finds?

    Then a condition more would let it find others in their place.
    """
    query = found.query
    return bool(
        query.is_sliced
        or query.combinator
        or query.distinct_fields
        or query.where.contains_over_clause
    )


def change_pages(
    model: type[Model], ids: list[int], statuses: Collection[str], change: Change
) -> Iterator[int]:
    """Change jobs page by page; yield how many of each page were changed.

    Jobs that another transaction has locked come last, and are tried again for LOCKED_SECONDS in
    all. Raise JobError if some still have one of *statuses* then. What stays for a twin with its
    unique key is no reason.
    """
    left: list[int] = []
    for page in _pages(ids):
        effect = _change_page(page, change)
        yield len(effect.changed)
        left += _unsettled(page, effect)
    deadline = time.monotonic() + LOCKED_SECONDS
    while left := _with_status(model, left, statuses):
        if time.monotonic() > deadline:
            raise JobError(
                f"{counted(len(left), 'job')}, such as {left[0]}, could not be changed: locked by "
                f"another transaction for {LOCKED_SECONDS:g} s, or in a workflow that is being "
                "deleted. All others were. Try again when that transaction has ended."
            )
        time.sleep(LOCKED_GAP_SECONDS)
        still: list[int] = []
        for page in _pages(left):
            effect = _change_page(page, change)
            yield len(effect.changed)
            still += _unsettled(page, effect)
        left = still


def _pages(ids: list[int]) -> Iterator[list[int]]:
    return (ids[first : first + PAGE_JOBS] for first in range(0, len(ids), PAGE_JOBS))


def _change_page(page: list[int], change: Change) -> Effect:
    with seeing_commits(job_database()), connections[job_database()].cursor() as cursor:
        return change(cursor, page)


def _unsettled(page: list[int], effect: Effect) -> list[int]:
    """Return those jobs of a page that were not changed, and stay for no twin."""
    settled = {*effect.changed, *(job_id for job_id, twin_id in effect.conflicts if twin_id)}
    return [job_id for job_id in page if job_id not in settled]


def _with_status(model: type[Model], ids: list[int], statuses: Collection[str]) -> list[int]:
    """Return those of some jobs that have one of *statuses*."""
    rows = model._base_manager.using(job_database())
    found: list[int] = []
    for page in _pages(ids):
        # By the primary key alone; with the status the planner might take the index of ends.
        pairs = rows.filter(pk__in=page).values_list("pk", "status")
        found += (job_id for job_id, status in pairs if status in statuses)
    return found
