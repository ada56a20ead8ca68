"""Background jobs for Django that live in the project's own PostgreSQL.

    from django_pgjobs import task

    @task(queue_name="mail", max_attempts=5)
    def send_welcome(user_id: int) -> None: ...

    send_welcome.enqueue(user_id=user.pk)     # commits or rolls back with the caller's data

Importing this module needs no settings and loads no model.
"""

from __future__ import annotations

from django_pgjobs.context import CurrentJob, current_job
from django_pgjobs.control.lifecycle import (
    acancel,
    arequeue,
    areschedule,
    cancel,
    requeue,
    reschedule,
)
from django_pgjobs.control.pauses import apause, aresume, pause, resume
from django_pgjobs.control.rate_limits import Grant, aacquire, acquire, atry_acquire, try_acquire
from django_pgjobs.declaring.calls import Call
from django_pgjobs.declaring.job_result import JobResult
from django_pgjobs.declaring.retries import Exponential
from django_pgjobs.declaring.schedules import schedule
from django_pgjobs.declaring.tasks import Task, task
from django_pgjobs.exceptions import (
    BatchOpen,
    BatchSealed,
    Discard,
    DuplicateJob,
    DuplicateWorkflow,
    JobCancelled,
    JobError,
    JobInterrupt,
    JobTimeout,
    PayloadError,
    RateLimited,
    Retry,
    Snooze,
    UnknownBatch,
    UnknownRateLimit,
    UnknownTask,
    WorkerLost,
)
from django_pgjobs.flows import (
    achain,
    agroup,
    aworkflow,
    chain,
    current_batch,
    group,
    workflow,
)
from django_pgjobs.status import JobStatus

__version__ = "0.1.0"

__all__ = [
    "BatchOpen",
    "BatchSealed",
    "Call",
    "CurrentJob",
    "Discard",
    "DuplicateJob",
    "DuplicateWorkflow",
    "Exponential",
    "Grant",
    "JobCancelled",
    "JobError",
    "JobInterrupt",
    "JobResult",
    "JobStatus",
    "JobTimeout",
    "PayloadError",
    "RateLimited",
    "Retry",
    "Snooze",
    "Task",
    "UnknownBatch",
    "UnknownRateLimit",
    "UnknownTask",
    "WorkerLost",
    "aacquire",
    "acancel",
    "achain",
    "acquire",
    "agroup",
    "apause",
    "arequeue",
    "areschedule",
    "aresume",
    "atry_acquire",
    "aworkflow",
    "cancel",
    "chain",
    "current_batch",
    "current_job",
    "group",
    "pause",
    "requeue",
    "reschedule",
    "resume",
    "schedule",
    "task",
    "try_acquire",
    "workflow",
]
