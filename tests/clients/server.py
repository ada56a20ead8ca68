"""What the tests of clients do with the server, and see of it."""

from __future__ import annotations

from typing import Any

from django.db.models.functions import Now

from django_pgjobs import cancel
from django_pgjobs.models import Job, Token, Worker
from tests.clients import tasks
from tests.factories import make_token
from tests.process.support import fetch_rows

# Three of them are the lease.
HEARTBEAT_SECONDS = 0.5


class Server:
    """Jobs in the test database, for programs that ask *backend*."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.token = make_token(verbs=["work"], queues=[tasks.QUEUE])

    def enqueue(self, name: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> int:
        """Enqueue a job of a task of tests.clients.tasks."""
        task = getattr(tasks, name)
        if timeout is not None:
            task = task.using(timeout=timeout)
        return int(task.enqueue(*args, **kwargs).id)

    def row(self, job: int) -> Job:
        """Return how a job stands."""
        return Job.objects.get(pk=job)

    def cancel(self, job: int) -> None:
        """Ask for the end of a job."""
        cancel(job)

    def forget_workers(self) -> None:
        """Let the lease of all workers be over; the next heartbeat finds that out."""
        fetch_rows(
            "UPDATE pgjobs_worker SET lease_expires_at = now() - interval '1 hour' RETURNING id"
        )

    def revoke_token(self) -> None:
        """Let the token be good for nothing; web processes know within seconds."""
        Token.objects.update(revoked_at=Now())

    def order(self, **columns: Any) -> None:
        """Write what people ask of all workers."""
        Worker.objects.update(**columns)

    def workers(self) -> int:
        """Return how many workers have not said goodbye."""
        return Worker.objects.filter(ended_at=None).count()
