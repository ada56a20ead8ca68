"""Which jobs another one came of, as far as its row says: a failed one, the first of a copy."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.http import HttpRequest
from django.utils.translation import gettext as _

from django_pgjobs.models import Job
from django_pgjobs.permissions import Verb, is_narrowed, narrow
from django_pgjobs.queries.job_page import Neighbour
from django_pgjobs.values.bounds import MAX_BIGINT


class Origin(NamedTuple):
    """A job that another one came of, and in which way."""

    label: str
    jobs: list[Neighbour]


def origins_of(request: HttpRequest, job: Job) -> list[Origin]:
    """Return the jobs that *job* came of and the person may see, found by their ids alone."""
    failed, copied, source = _failed_id(job), _copied_id(job), _job_id(job.source_id)
    named = {job_id for job_id in (failed, copied, source) if job_id}
    if not named:
        return []
    found = Job.objects.filter(pk__in=named)
    columns = ("task_path", "status", "correlation_id", "on_failure")
    rows = {row.pk: row for row in narrow(request.user, Verb.VIEW, found).only(*columns)}
    origins = []
    if failed in rows and _has_enqueued(rows[failed], job):
        origins.append(Origin(_("After the failure of"), [_shown(rows[failed])]))
    for label, job_id in ((_("Copy of"), copied), (_("From the result of"), source)):
        if job_id in rows:
            origins.append(Origin(label, [_shown(rows[job_id])]))
        elif job_id and not is_narrowed(request.user):
            origins.append(Origin(label, [Neighbour(job_id, None, None)]))
    return origins


def _failed_id(job: Job) -> int | None:
    """Return the id that jobs of `on_failure` have as their first argument of two."""
    args = job.args
    if not isinstance(args, list) or len(args) != 2 or not isinstance(args[1], str):
        return None
    return _job_id(args[0])


def _copied_id(job: Job) -> int | None:
    return _job_id(job.metadata.get("copy_of")) if isinstance(job.metadata, dict) else None


def _job_id(value: Any) -> int | None:
    is_id = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_BIGINT
    return value if is_id else None


def _has_enqueued(failed: Job, job: Job) -> bool:
    """Does what *failed* enqueues when it fails look like *job*?"""
    call = failed.on_failure
    return (
        isinstance(call, dict)
        and call.get("task_path") == job.task_path
        and failed.correlation_id == job.correlation_id
        and failed.pk < job.pk
    )


def _shown(job: Job) -> Neighbour:
    return Neighbour(job.pk, job.status, job.task_path)
