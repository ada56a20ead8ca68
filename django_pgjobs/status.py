"""The five statuses of a job, their groups, and the other words that rows may hold."""

from __future__ import annotations

from django.db.models.enums import TextChoices
from django.utils.translation import gettext_lazy as _


class JobStatus(TextChoices):
    """What `pgjobs_job.status` may hold; the values are the partition keys.

    *Scheduled*, *retrying* and *blocked* are views of `ready`, not statuses of their own.
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


class AfterFailure(TextChoices):
    """What becomes of a job when one that it waits for fails or is cancelled."""

    CANCEL = "cancel", _("Cancel")
    RUN = "run", _("Run anyway")
    HOLD = "hold", _("Hold until somebody decides")


class PauseKind(TextChoices):
    """What can be paused."""

    QUEUE = "queue", _("Queue")
    TASK = "task", _("Task")
    KEY = "key", _("Concurrency key")
