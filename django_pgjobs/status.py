"""The five statuses of a job, and their groups."""

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
