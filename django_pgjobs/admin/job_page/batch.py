"""The batch of a job, for the page of the job."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.http import HttpRequest

from django_pgjobs.admin.pages import PageAdmin
from django_pgjobs.control.explanation import Reason
from django_pgjobs.models import Batch, Job
from django_pgjobs.models.batch_states import LARGE_FIELDS, with_states
from django_pgjobs.permissions import Verb, whole_workflows
from django_pgjobs.status import JobStatus

# After these, what needs them to succeed is not run.
ENDED_BADLY = (JobStatus.FAILED, JobStatus.CANCELLED)


class BatchOfJob(NamedTuple):
    """A batch with its *state*, where it and its workflow are.

    *reasons* say why it does not end, or what follows it and was not run for the sake of the job.
    """

    batch: Any
    url: str
    root_url: str
    reasons: tuple[Reason, ...]


def batch_of(model_admin: PageAdmin, request: HttpRequest, job: Job) -> BatchOfJob | None:
    """Return the batch of a job, None if there is none that the person may see."""
    if job.batch_id is None:
        return None
    names = [*LARGE_FIELDS, *(f"root__{name}" for name in LARGE_FIELDS)]
    batches = with_states(Batch.objects.select_related("root").defer(*names))
    batch = batches.filter(pk=job.batch_id).first()
    if batch is None or not whole_workflows(request.user, Verb.VIEW, [batch.root_id]):
        return None
    return BatchOfJob(
        batch,
        model_admin.url("pgjobs_batch_change", batch.pk),
        model_admin.url("pgjobs_batch_change", batch.root_id),
        _what_is_to_say(batch, job),
    )


def _what_is_to_say(batch: Any, job: Job) -> tuple[Reason, ...]:
    if batch.tree_completed_at is None:
        return tuple(batch.explain().reasons)
    try:
        reasons = job.explain().reasons if job.status in ENDED_BADLY else ()
    except LookupError:  # deleted a moment ago
        return ()
    return tuple(reason for reason in reasons if reason.code == "not_run")
