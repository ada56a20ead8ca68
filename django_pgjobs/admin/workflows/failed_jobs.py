"""Which jobs of a tree failed, and why: a part of the page of a batch."""

from __future__ import annotations

from typing import NamedTuple

from django.db import connections

from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.control.failures import class_name
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.queries.budget import apart
from django_pgjobs.queries.database import job_database
from django_pgjobs.queries.workflow_pages import FailedJob, TreeSum, list_failed


class ShownFailure(NamedTuple):
    """A failed job, its page, and the name of its exception's class without the module."""

    job: FailedJob
    url: str
    class_name: str


class FailedJobs(NamedTuple):
    """The newest failed jobs of a tree; None: they could not be found in time."""

    jobs: list[ShownFailure] | None
    has_more: bool


def failed_jobs(model_admin: PageAdmin, total: TreeSum) -> FailedJobs | None:
    """Return the newest failed jobs of a tree with these numbers, None if nothing has failed."""
    if total.failed <= 0 and not total.is_cut:
        return None
    alias = job_database()
    try:
        with apart(alias), connections[alias].cursor() as cursor:
            found = list_failed(cursor, total.id)
    except TooSlow:
        return FailedJobs(None, has_more=True)
    if total.failed <= 0 and not found:
        return None
    shown = [
        ShownFailure(job, model_admin.url("pgjobs_job_change", job.id), class_name(job.error_class))
        for job in found
    ]
    return FailedJobs(shown, has_more=total.is_cut or total.failed > len(found))
