"""What the programs with a client do (`remote_worker.py`, `remote_worker.mjs`), and a tree."""

from __future__ import annotations

from typing import Any

from django_pgjobs import current_job, task
from tests.models import Effect

QUEUE = "remote"


@task(remote=True, queue_name=QUEUE)
def note(folder: str, text: str) -> None:
    """Write *text* to the journal."""


@task(remote=True, queue_name=QUEUE)
def add(first: int, *, second: int = 0) -> dict[str, int]:
    """Return the sum."""
    return {"sum": first + second}


@task(remote=True, queue_name=QUEUE)
def hold(folder: str, text: str) -> int:
    """Write "start <text> <attempt>", wait for the gate, write "end ...", return the attempt."""
    raise NotImplementedError


@task(remote=True, queue_name=QUEUE)
def ignore(folder: str, text: str) -> None:
    """Write "start <text>" and go on for ever, whatever happens."""


@task(remote=True, queue_name=QUEUE, backoff=[0])
def fail(times: int) -> int:
    """Fail so often; return the attempt."""
    raise NotImplementedError


@task(remote=True, queue_name=QUEUE)
def wait_and_see() -> int:
    """Ask for another attempt; return the attempt."""
    raise NotImplementedError


@task(remote=True, queue_name=QUEUE)
def discard() -> None:
    """Ask for no other attempt."""


@task(remote=True, queue_name=QUEUE)
def make_large() -> str:
    """Return more than the server takes."""
    raise NotImplementedError


@task(remote=True, queue_name=QUEUE)
def progress_last() -> None:
    """Say how far it is, and end."""


@task(remote=True, queue_name=QUEUE)
def progress_strangely(folder: str) -> None:
    """Say of the progress what cannot be stored, again and again until the gate is open."""


@task(remote=True, queue_name=QUEUE, max_attempts=1)
def fail_strangely() -> None:
    """Fail with a text that cannot be stored."""


@task(remote=True, queue_name=QUEUE, max_attempts=1)
def fail_silently() -> None:
    """Fail with an exception that cannot be made a text."""


@task(remote=True, queue_name=QUEUE, max_attempts=1)
def ask_strangely() -> None:
    """Ask for another attempt after what is no number."""


@task(remote=True, queue_name=QUEUE)
def make_strange() -> Any:
    """Return what is no JSON."""
    raise NotImplementedError


# A tree: begin (here), convert (elsewhere), record (here), tell (here).


@task(backoff=[0])
def begin(number: int) -> int:
    """Return the number."""
    return number


@task(remote=True, queue_name=QUEUE, backoff=[0])
def convert(number: int) -> dict[str, int]:
    """Return the square, after a moment."""
    return {"number": number, "square": number * number}


@task(atomic=True, backoff=[0])
def record(converted: dict[str, int]) -> None:
    """Insert an Effect."""
    job = current_job()
    key = f"{converted['number']}: {converted['square']}"
    Effect.objects.create(key=key, job_id=int(job.id), attempt=job.attempt)


@task(atomic=True, backoff=[0])
def tell(batch_id: int) -> None:
    """Insert the Effect of the end."""
    Effect.objects.create(key="complete", job_id=int(current_job().id))
