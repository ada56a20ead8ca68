"""The jobs that are cancelled because the jobs that they wait for are."""

from __future__ import annotations

from collections.abc import Callable

from django.db import connections
from django.db.models import QuerySet

from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import Dependency, Job
from django_pgjobs.queries.budget import time_budget
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.dependencies import list_dependants
from django_pgjobs.status import AfterFailure

# Jobs that are counted; beyond it is "more than 10,000".
MAX_DEPENDANTS = 10_000
COUNT_SECONDS = 0.5


def count_dependants(jobs: QuerySet[Job], *, quick_seconds: float | None = None) -> int | None:
    """Return how many other jobs are cancelled with *jobs*, None if there is no time to count.

    That is COUNT_SECONDS for each statement, or *quick_seconds* for all.
    """
    is_quick = quick_seconds is not None
    try:
        with time_budget(
            job_database(), quick_seconds or COUNT_SECONDS, together=is_quick
        ) as go_on:
            return find_dependants(jobs, go_on)
    except TooSlow:
        return None


def find_dependants(jobs: QuerySet[Job], go_on: Callable[[], None]) -> int | None:
    """Return how many other jobs are cancelled with *jobs*, at any distance; call *go_on* before
    each further statement.

    Up to MAX_DEPENDANTS + 1, which stands for more; None if more of *jobs* than these have some.
    """
    database = job_database()
    edges = Dependency.objects.using(database).filter(after_failure=AfterFailure.CANCEL)
    heads = edges.filter(predecessor_id__in=jobs.order_by().values("pk"))
    ids = list(heads.values_list("predecessor_id", flat=True).distinct()[: MAX_DEPENDANTS + 1])
    if not ids or len(ids) > MAX_DEPENDANTS:
        return None if ids else 0
    go_on()
    with connections[database].cursor() as cursor:
        reached = list_dependants(cursor, ids, max_jobs=MAX_DEPENDANTS + 1)
    go_on()
    # One that waits for another of *jobs* may be one of them, too.
    among = jobs.filter(pk__in=reached).count() if reached else 0
    return None if among and len(reached) > MAX_DEPENDANTS else len(reached) - among
