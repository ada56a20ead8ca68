"""Deleting a workflow that may still run: a job of our own waits for its end."""

from __future__ import annotations

from django_pgjobs.conf import OWN_QUEUE
from django_pgjobs.declaring.own_tasks import find_alias, find_queue
from django_pgjobs.declaring.tasks import task
from django_pgjobs.exceptions import BatchOpen, Snooze
from django_pgjobs.models import Batch
from django_pgjobs.queries.database import job_database

# How often it is looked whether something still runs.
LOOK_SECONDS = 5.0

ALIAS = find_alias()


@task(
    backend=ALIAS,
    queue_name=find_queue(ALIAS, OWN_QUEUE),
    resets_session=False,
    unique_key="remove:{batch_id}",
)
def remove_workflow(batch_id: int) -> None:
    """Delete a workflow once all of it has ended; leave one that was let run again."""
    found = Batch.objects.using(job_database()).filter(pk=batch_id).first()
    if found is None:
        return
    if found.tree_completed_at is None:
        if found.cancel_requested_at is None:
            return
        raise Snooze(LOOK_SECONDS, "something of the workflow still runs")
    try:
        found.delete()
    except BatchOpen as error:
        raise Snooze(LOOK_SECONDS, str(error)) from error


def remove(batch: Batch) -> None:
    """Cancel a workflow, and let a worker delete it when nothing of it runs."""
    batch.cancel()
    remove_workflow.enqueue(batch.pk)
