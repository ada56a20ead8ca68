"""A task whose enqueue stops the process; a worker knows it if TASK_MODULES names this module."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from django_pgjobs import task
from tests.process.tasks import write


def stop_once(folder: str) -> str:
    """Stop the process that enqueues, the first time."""
    try:
        (Path(folder) / "stopped").touch(exist_ok=False)
    except FileExistsError:
        return "any"
    os.kill(os.getpid(), signal.SIGSTOP)
    return "any"


@task(concurrency_key=stop_once)
def note_after_stop(folder: str) -> None:
    """Write "ran"; the process that enqueues the first one is stopped just then."""
    write(folder, "ran")
