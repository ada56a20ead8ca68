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
from django_pgjobs.declaring.job_result import JobResult
from django_pgjobs.declaring.retries import Exponential
from django_pgjobs.declaring.tasks import Task, task
from django_pgjobs.exceptions import (
    Discard,
    DuplicateJob,
    JobCancelled,
    JobError,
    JobInterrupt,
    JobTimeout,
    PayloadError,
    RateLimited,
    Retry,
    Snooze,
    UnknownRateLimit,
    UnknownTask,
    WorkerLost,
)
from django_pgjobs.status import JobStatus

__version__ = "0.1.0"

__all__ = [
    "CurrentJob",
    "Discard",
    "DuplicateJob",
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
    "UnknownRateLimit",
    "UnknownTask",
    "WorkerLost",
    "aacquire",
    "acancel",
    "acquire",
    "apause",
    "arequeue",
    "areschedule",
    "aresume",
    "atry_acquire",
    "cancel",
    "current_job",
    "pause",
    "requeue",
    "reschedule",
    "resume",
    "task",
    "try_acquire",
]
