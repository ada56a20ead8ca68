"""What lists say of a job beside its status: why a ready one waits, that one is to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_pgjobs.queries.control import list_paused_jobs
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.status import Detail, Hold, JobStatus, Waiting, waiting_of


def find_paused(jobs: Sequence[Any]) -> set[int]:
    """Return the ids of those *jobs* that could start now but for a pause, by one statement."""
    ids = [job.pk for job in jobs if job.status == JobStatus.READY]
    if not ids:
        return set()
    with job_cursor() as cursor:
        return list_paused_jobs(cursor, ids)


def detail_of(job: Any, *, is_paused: bool) -> Hold | Detail | None:
    """Return what is to be said of a job beside its status, None if that says all.

    *is_paused* is whether `find_paused` found it. One whose time has not come is scheduled or
    retrying, whatever is paused.
    """
    waiting = waiting_of(job)
    if waiting is Waiting.BLOCKED:
        return Hold(job.hold)
    if is_paused:
        return Detail.PAUSED
    if waiting in (Waiting.RETRYING, Waiting.SCHEDULED):
        return Detail(waiting)
    if job.status == JobStatus.RUNNING and job.cancel_requested_at is not None:
        return Detail.ASKED_TO_END
    return None
