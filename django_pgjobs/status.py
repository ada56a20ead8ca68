"""The five statuses of a job, their groups, and the other words for rows and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from django.db.models.enums import TextChoices
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


class JobStatus(TextChoices):
    """What `pgjobs_job.status` may hold; the values are the partition keys.

    *Scheduled*, *retrying* and *blocked* are views of `ready`, not statuses of their own: Waiting.
    """

    READY = "ready", _("Ready")
    RUNNING = "running", _("Running")
    SUCCESSFUL = "successful", _("Successful")
    FAILED = "failed", _("Failed")
    CANCELLED = "cancelled", _("Cancelled")


UNFINISHED = frozenset({JobStatus.READY, JobStatus.RUNNING})
FINISHED = frozenset({JobStatus.SUCCESSFUL, JobStatus.FAILED, JobStatus.CANCELLED})


class Hold(TextChoices):
    """What `pgjobs_job.hold` may say of a ready job that waits without a time."""

    DEPENDENCIES = "dependencies", _("Waits for other jobs")
    PREDECESSOR_FAILED = "predecessor failed", _("A job before it failed")


class Waiting(StrEnum):
    """How a ready job waits: it could start, or for what; each does in just one of these ways.

    `WAITING` says which job does, to QuerySets, and `waiting_of` in Python. Statements have the
    terms `is_ready`, `is_scheduled`, `is_retrying` and `is_blocked`; tests/test_waiting.py
    compares all three.
    """

    READY = "ready"
    SCHEDULED = "scheduled"
    RETRYING = "retrying"
    BLOCKED = "blocked"


WAITING: Mapping[Waiting, Mapping[str, Any]] = {
    Waiting.READY: {"status": "ready", "hold__isnull": True, "due_at__isnull": True},
    Waiting.SCHEDULED: {
        "status": "ready", "hold__isnull": True, "due_at__isnull": False, "attempts__lte": 0
    },
    Waiting.RETRYING: {
        "status": "ready", "hold__isnull": True, "due_at__isnull": False, "attempts__gte": 1
    },
    Waiting.BLOCKED: {"status": "ready", "hold__isnull": False},
}  # fmt: skip


def waiting_of(job: Any) -> Waiting | None:
    """Return how a job waits, None if it is not ready."""
    if job.status != JobStatus.READY:
        return None
    if job.hold is not None:
        return Waiting.BLOCKED
    if job.due_at is None:
        return Waiting.READY
    return Waiting.RETRYING if job.attempts >= 1 else Waiting.SCHEDULED


class Detail(TextChoices):
    """What else is said of a job beside its status and its hold (`control/details.py`)."""

    SCHEDULED = Waiting.SCHEDULED.value, _("scheduled")
    RETRYING = Waiting.RETRYING.value, _("retrying")
    PAUSED = "paused", _("paused")
    ASKED_TO_END = "asked to end", _("asked to end")


class AfterFailure(TextChoices):
    """What happens to a job when one that it waits for fails or is cancelled."""

    CANCEL = "cancel", _("Cancel")
    RUN = "run", _("Run anyway")
    HOLD = "hold", _("Hold until somebody decides")


class OccurrenceOutcome(TextChoices):
    """The outcome of an occurrence of a schedule."""

    ENQUEUED = "enqueued", _("Enqueued")
    JOINED = "joined", _("Joined a job that waited")
    SKIPPED = "skipped", _("Skipped")
    MISSED = "missed", _("Missed")
    FAILED = "failed", _("Not enqueued")


class PauseKind(TextChoices):
    """What can be paused."""

    QUEUE = "queue", _("Queue")
    TASK = "task", _("Task")
    KEY = "key", _("Concurrency key")


class Follows(TextChoices):
    """What of the batches before it makes the jobs of a batch."""

    EACH = "each", _("Each result")
    EACH_ITEM = "each item", _("Each element of a result")
    GATHER = "gather", _("All results")
    COMPLETION = "completion", _("The end")


class OnFailedJob(TextChoices):
    """What else is cancelled when a job of a batch fails."""

    CONTINUE = "continue", _("Go on")
    BRANCH = "cancel branch", _("Cancel it and what is below it")
    WORKFLOW = "cancel workflow", _("Cancel the workflow")


class BatchState(TextChoices):
    """How a batch and all below it do; `models.batch_states` says which row is in which."""

    BROKEN = "broken", _("Broken")
    CANCELLED = "cancelled", _("Cancelled")
    FAILED = "failed", _("Failed")
    NOT_RUN = "not run", _("Not run")
    SUCCESSFUL = "successful", _("Successful")
    CANCELLING = "cancelling", _("Being cancelled")
    WAITING = "waiting", _("Waiting")
    OPEN = "open", pgettext_lazy("state of a batch", "Open")
    RUNNING = "running", _("Running")


ENDED = frozenset(
    {BatchState.CANCELLED, BatchState.FAILED, BatchState.NOT_RUN, BatchState.SUCCESSFUL}
)
