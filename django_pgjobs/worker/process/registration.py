"""The row that a worker enters for itself."""

from __future__ import annotations

import os

import django_pgjobs
from django_pgjobs.declaring.remote import local_paths
from django_pgjobs.declaring.schedules import declared_schedules
from django_pgjobs.queries.workers import Registration
from django_pgjobs.worker.state import WorkerState


def registration(state: WorkerState, host: str) -> Registration:
    """Return the row of the worker in this process."""
    options = state.options
    return {
        "name": state.name,
        "host": host,
        "pid": os.getpid(),
        "version": django_pgjobs.__version__,
        "slots": options.concurrency,
        "queues": list(options.queues) if options.queues is not None else None,
        "excluded_queues": list(options.excluded_queues),
        "backends": list(options.backends),
        "task_paths": local_paths(),
        "schedule_names": list(declared_schedules()),
        "token_id": None,
        "lease": options.lease,
        "quiet": state.quiet,
    }
