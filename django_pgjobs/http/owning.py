"""Which jobs and workflows are a token's: those of its scope, and those that it opened."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.db.models import Q, QuerySet

from django_pgjobs.http.access import Access
from django_pgjobs.http.problems import Problem, forbidden
from django_pgjobs.http.sessions import in_bounded_time
from django_pgjobs.http.shown import OPENER
from django_pgjobs.models import Batch, Job
from django_pgjobs.models.batch_states import in_tree
from django_pgjobs.queries.database import job_database


def jobs_of(access: Access) -> QuerySet[Job]:
    """Return the jobs that a token is for."""
    return Job.objects.using(job_database()).filter(_of_scope(access))


def _of_scope(access: Access) -> Q:
    queues = Q() if access.queues is None else Q(queue_name__in=sorted(access.queues))
    tasks = Q() if access.tasks is None else Q(task_path__in=sorted(access.tasks))
    return queues & tasks


def with_opener(metadata: Mapping[str, Any] | None, access: Access) -> dict[str, Any]:
    """Return the metadata of a workflow that this token opens."""
    return {**(metadata or {}), OPENER: access.token_id}


def has_opened(access: Access, batch: Batch) -> bool:
    """Did this very token open the workflow of a batch?"""
    roots = Batch.objects.using(job_database()).filter(pk=batch.root_id)
    metadata = roots.values_list("metadata", flat=True).first()
    return isinstance(metadata, dict) and metadata.get(OPENER) == access.token_id


def duplicate(detail: str) -> Problem:
    """Return the problem of a key that somebody else has."""
    return Problem("duplicate", detail=detail)


def require_jobs(access: Access, job_ids: Collection[str]) -> None:
    """Raise Problem (409) if a key has led to a job that the token is not for."""
    if access.is_for_all:
        return
    others = Job.objects.using(job_database()).filter(pk__in=list(job_ids))
    if others.filter(~_of_scope(access)).exists():
        raise duplicate("A job that this token is not for has the key.")


def require_all(access: Access, batch: Batch) -> None:
    """Raise Problem (403) if something below a batch is of a queue or task that a token is not for.

    What is empty tells of nobody's jobs: it belongs to the token that opened the workflow.
    There may be much below: it is asked once in the life of a workflow, by tokens with scopes only.
    """
    if access.is_for_all:
        return
    with in_bounded_time():
        may_use = all(
            access.may_use(str(step["queue_name"]), str(step["task_path"]))
            for step in _steps(batch)
        )
        if not may_use or _jobs(batch).filter(~_of_scope(access)).exists():
            raise forbidden("This token is not for all queues and tasks of the workflow.")
        require_begun(access, batch)


def require_begun(access: Access, batch: Batch) -> None:
    """Raise Problem (403) if a batch is empty, of another token, and this one is not for all.

    By a job that it adds to nothing a token would become one that is for all that is in it.
    """
    if access.is_for_all or has_opened(access, batch):
        return
    if not (_jobs(batch).exists() or _steps(batch)):
        raise forbidden("Another token opened the workflow, and nothing is in it.")


def _jobs(batch: Batch) -> QuerySet[Job]:
    return Job.objects.using(job_database()).filter(in_tree(batch.pk))


def _steps(batch: Batch) -> list[dict[str, Any]]:
    """Return what jobs the workflow of a batch makes of results."""
    batches = Batch.objects.using(job_database()).filter(root_id=batch.root_id)
    found = batches.filter(step__isnull=False).values_list("step", flat=True)
    return [step for step in found if step is not None]
