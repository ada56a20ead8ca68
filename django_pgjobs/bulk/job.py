"""The background job of a large bulk change; every worker knows its task.

It must not wait for the jobs that it changes. So it has a queue of its own, which every worker
serves, with the highest priority and boost: no pause, limit or backlog of another queue delays it.
"""

from __future__ import annotations

from contextlib import suppress

from django.db import transaction

from django_pgjobs.conf import OWN_QUEUE
from django_pgjobs.context import current_job
from django_pgjobs.control.lifecycle import cancel
from django_pgjobs.declaring.own_tasks import find_alias, find_queue
from django_pgjobs.declaring.tasks import task
from django_pgjobs.models import BulkChange, Job, QueueSettings
from django_pgjobs.queries.database import job_database
from django_pgjobs.status import UNFINISHED, JobStatus
from django_pgjobs.values.bounds import MAX_PRIORITY

MAX_BOOST = 200
NOTE = "Large changes of the admin, ahead of all others."


ALIAS = find_alias()


@task(backend=ALIAS, queue_name=find_queue(ALIAS, OWN_QUEUE))
def run_bulk_change(change_id: int) -> dict[str, int]:
    """Do what is left of a bulk change; return how many jobs it came to."""
    # Every worker loads this module, and next to none has a change to make.
    from django_pgjobs.bulk.changes import count_total, run_page

    change = BulkChange.objects.using(job_database()).filter(pk=change_id).first()
    if change is not None and change.total is None and change.finished_at is None:
        count_total(change)
    while run_page(change_id).goes_on:
        report_progress(change_id)
    return report_progress(change_id)


def report_progress(change_id: int) -> dict[str, int]:
    """Report how far the change is as the job's progress; return that."""
    names = ("changed", "passed_over", "conflicts")
    changes = BulkChange.objects.using(job_database()).filter(pk=change_id)
    *numbers, total = changes.values_list(*names, "total").first() or (0, 0, 0, None)
    with suppress(LookupError):
        current_job().progress(sum(numbers), total)
    return dict(zip(names, numbers, strict=True))


def enqueue_change(change: BulkChange) -> None:
    """Enqueue the rest of a change, unless a job still does it."""
    database = job_database()
    with transaction.atomic(using=database):
        locked = BulkChange.objects.using(database).select_for_update().get(pk=change.pk)
        if locked.finished_at is None and not has_job(locked):
            QueueSettings.objects.using(database).get_or_create(
                queue_name=OWN_QUEUE, defaults={"boost": MAX_BOOST, "note": NOTE}
            )
            result = run_bulk_change.using(priority=MAX_PRIORITY).enqueue(locked.pk)
            job_id = str(result.id)
            locked.job_id = int(job_id) if job_id.isdecimal() else None
            locked.save(using=database, update_fields=["job_id"])
        change.job_id = locked.job_id


def has_job(change: BulkChange) -> bool:
    """Is there a job that will go on with the change?"""
    if change.job_id is None:
        return False
    jobs = Job.objects.using(job_database()).filter(pk=change.job_id)
    return jobs.filter(status__in=sorted(UNFINISHED)).exists()


def drop_job(change: BulkChange) -> None:
    """Cancel the job of a change that has ended, if it has not begun; a running one sees it."""
    if change.job_id is None:
        return
    jobs = Job.objects.using(job_database()).filter(pk=change.job_id)
    if jobs.filter(status=JobStatus.READY).exists():
        cancel(change.job_id)
