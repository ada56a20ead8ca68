"""Changing jobs by their ids on the command line: cancel and requeue."""

from __future__ import annotations

from collections.abc import Callable

from django.core.management.base import CommandError

from django_pgjobs.control import lifecycle
from django_pgjobs.exceptions import JobError
from django_pgjobs.management.printing import Write
from django_pgjobs.models import Job
from django_pgjobs.status import JobStatus
from django_pgjobs.values.words import counted


def cancel(write: Write, ids: list[int]) -> None:
    """Cancel jobs that wait and ask those that run to end.

    Raise CommandError if one had finished, is locked or does not exist.
    """

    def cancel_one(job_id: int) -> str:
        if not lifecycle.cancel(job_id):
            return ""
        is_cancelled = Job.objects.filter(pk=job_id, status=JobStatus.CANCELLED).exists()
        return "cancelled" if is_cancelled else "asked to end"

    _change_each(write, ids, cancel_one, "cancelled", "has finished or does not exist")


def requeue(write: Write, ids: list[int]) -> None:
    """Give finished jobs new attempts; raise CommandError if one got none."""

    def requeue_one(job_id: int) -> str:
        return "requeued" if lifecycle.requeue(job_id) else ""

    _change_each(write, ids, requeue_one, "requeued", "is not finished or does not exist")


def _change_each(
    write: Write,
    ids: list[int],
    change: Callable[[int], str],
    done: str,
    not_done: str,
) -> None:
    """Change each job and write what *change* did, "": nothing."""
    failed = 0
    for each in ids:
        try:
            did = change(each)
            said = did or not_done
        except JobError as error:
            did, said = "", str(error)
        failed += not did
        write(f"job {each}: {said}")
    if failed:
        verb = "was" if failed == 1 else "were"
        raise CommandError(f"{failed} of {counted(len(ids), 'job')} {verb} not {done}.")
