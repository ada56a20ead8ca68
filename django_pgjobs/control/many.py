"""Changing all jobs that a QuerySet finds, 1,000 at a time.

Which jobs those are is read once, before the first is changed: none that comes later is among them.
Each page is a transaction of its own, or all are part of the caller's. A job is changed only with
the status that it was read with: one that has begun since is asked to end if the QuerySet finds it
as it is now, and one that somebody else has run again is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from django.db import DatabaseError, connections
from django.db.models import Model, QuerySet

from django_pgjobs.control.changing import Change, Effect, do_to_most, refusal_text
from django_pgjobs.control.leaving import Why, why_locked
from django_pgjobs.control.lifecycle import LOCKED_GAP_SECONDS, LOCKED_SECONDS
from django_pgjobs.exceptions import JobError
from django_pgjobs.queries.crossing import seeing_commits
from django_pgjobs.queries.database import job_cursor, job_database
from django_pgjobs.status import FINISHED
from django_pgjobs.values.words import counted

# Jobs that one transaction changes.
PAGE_JOBS = 1_000

# id -> status.
Jobs = Mapping[int, str]


def change_all(
    found: QuerySet[Any], statuses: Collection[str], change: Change, why: Why = why_locked
) -> int:
    """Change the jobs of a QuerySet that have one of *statuses*; return how many were changed.

    Raise JobError as `change_pages` does.
    """
    jobs = find_jobs(found, statuses)
    return sum(change_pages(found, jobs, statuses, change, why))


def find_jobs(found: QuerySet[Any], statuses: Collection[str]) -> Jobs:
    """Return those jobs of a QuerySet that have one of *statuses*, in its order.

    Raise TypeError after values() and the like: what that groups by, only it knows. Raise
    ValueError if it names another database by using(): its ids are those of other jobs here.
    """
    if found._fields is not None:  # type: ignore[attr-defined]
        raise TypeError("expected jobs, got a QuerySet of values. Change them before values().")
    database = job_database()
    if found._db not in (None, database):  # type: ignore[attr-defined]
        raise ValueError(
            f"expected jobs of the database {database!r}, got a QuerySet on {found.db!r}."
        )
    found = found.using(database)
    if not _compares_rows(found):
        found = found.filter(status__in=sorted(statuses))
    rows = found.values_list("pk", "status")
    return {job_id: status for job_id, status in rows if status in statuses}


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
    found: QuerySet[Any],
    jobs: Jobs,
    statuses: Collection[str],
    change: Change,
    why: Why = why_locked,
) -> Iterator[int]:
    """Change *jobs* of a QuerySet page by page; yield how many of each page were changed.

    Jobs that another transaction has locked come last, and are tried again for LOCKED_SECONDS in
    all; those that are kept (see `Effect`) are not. Raise JobError if some are still to be changed
    then, or if the database refused to change some: *why* says what keeps one. What stays for a
    twin with its unique key is no reason.
    """
    refusals: dict[int, DatabaseError] = {}
    kept: dict[int, str] = {}
    left, deadline = dict(jobs), None
    while left:
        still: dict[int, str] = {}
        stay: set[int] = set()
        for page in _pages(left):
            effect = _change_page(page, change, refusals)
            yield len(effect.changed)
            still |= _unsettled(page, effect, refusals)
            stay.update(effect.kept)
        left = _still_to_change(found, still, statuses)
        kept |= {job_id: left.pop(job_id) for job_id in [*left] if job_id in stay}
        deadline = deadline or time.monotonic() + LOCKED_SECONDS
        if left and time.monotonic() > deadline:
            break
        if left:
            time.sleep(LOCKED_GAP_SECONDS)
    if left or kept or refusals:
        told = [*_told_of(kept, why), *_told_of(left, why), *_told_of_refused(refusals)]
        raise JobError(" ".join([*told, "All others were changed."]))


def _pages(jobs: Jobs) -> Iterator[Jobs]:
    rows = list(jobs.items())
    return (dict(rows[first : first + PAGE_JOBS]) for first in range(0, len(rows), PAGE_JOBS))


def _change_page(page: Jobs, change: Change, refusals: dict[int, DatabaseError]) -> Effect:
    by_status: dict[str, list[int]] = {}
    for job_id, status in page.items():
        by_status.setdefault(status, []).append(job_id)
    whole = Effect()
    database = job_database()
    with seeing_commits(database), connections[database].cursor() as cursor:
        for status, ids in by_status.items():
            act = partial(change, cursor, statuses={status})
            whole += do_to_most(ids, act, refusals.__setitem__)
    return whole


def _unsettled(page: Jobs, effect: Effect, refused: Collection[int]) -> Jobs:
    """Return those jobs of a page that were not changed, and stay for no twin and no refusal."""
    twins = (job_id for job_id, twin_id in effect.conflicts if twin_id)
    settled = {*effect.changed, *twins, *refused}
    return {job_id: status for job_id, status in page.items() if job_id not in settled}


def _still_to_change(found: QuerySet[Any], left: Jobs, statuses: Collection[str]) -> dict[int, str]:
    """Return those jobs that are as they were read, or that the QuerySet finds as they are now."""
    now = _statuses_of(found.model, list(left))
    same = {job_id: status for job_id, status in now.items() if status == left[job_id]}
    others = {
        job_id: status
        for job_id, status in now.items()
        if job_id not in same and status in statuses and status not in FINISHED
    }
    return same | {job_id: others[job_id] for job_id in _found_again(found, others)}


def _statuses_of(model: type[Model], ids: list[int]) -> Jobs:
    rows = model._base_manager.using(job_database())
    now: dict[int, str] = {}
    for first in range(0, len(ids), PAGE_JOBS):
        # By the primary key alone; with the status the planner might take the index of ends.
        page = rows.filter(pk__in=ids[first : first + PAGE_JOBS])
        now.update(page.values_list("pk", "status"))
    return now


def _found_again(found: QuerySet[Any], ids: Collection[int]) -> Collection[int]:
    """Return those of some jobs that a QuerySet finds now, wherever its slice would end."""
    if not ids:
        return ()
    again = found.using(job_database())
    again.query.clear_limits()
    if not _compares_rows(again):
        again = again.filter(pk__in=sorted(ids))
    return set(again.values_list("pk", flat=True)) & set(ids)


def _told_of(jobs: Jobs, why: Why) -> Iterator[str]:
    """Yield why some jobs could not be changed."""
    for job_id in list(jobs)[:1]:
        with job_cursor() as cursor:
            said = why(cursor, job_id)
        yield f"{counted(len(jobs), 'job')}, such as {job_id}, could not be changed: {said}"


def _told_of_refused(refusals: Mapping[int, DatabaseError]) -> Iterator[str]:
    """Yield what the database said of some jobs that it refused to change."""
    for job_id, error in list(refusals.items())[:1]:
        yield (
            f"{counted(len(refusals), 'job')}, such as {job_id}, could not be changed: "
            f"{refusal_text(error)}"
        )
