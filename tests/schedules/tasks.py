"""Tasks for the tests of schedules."""

from __future__ import annotations

from typing import Any

from django_pgjobs import Retry, current_job, task
from tests.models import Effect


@task
def note_time(name: str = "") -> None:
    """Note for which time of which schedule this runs."""
    job = current_job()
    when = job.scheduled_for.isoformat() if job.scheduled_for else "none"
    Effect.objects.create(key=f"{job.schedule} {when}")


@task(unique_key="one")
def one_at_a_time() -> None:
    """Be enqueued once, until it has run."""


def refuse(**arguments: Any) -> str:
    """Give no key."""
    raise RuntimeError("no key today")


@task(concurrency_key=refuse)
def without_key() -> None:
    """Never be enqueued: its key raises."""


@task
def retry_once() -> str:
    """Fail the first time; keep the time."""
    if current_job().attempt == 1:
        raise Retry("again", after=0)
    return str(current_job().scheduled_for)


@task(schedulable=True)
def remind(kind: str, password: str = "") -> None:
    """Do nothing; people may let it run when they like."""
