"""Enqueue with Procrastinate on Django's connection; bulk is its `batch_defer`."""

from __future__ import annotations

import client
import django
from django.core.management import call_command


class ProcrastinateClient(client.Client):
    def setup(self) -> None:
        call_command("migrate", run_syncdb=True, verbosity=0)

    def enqueue(self, task: str, number: int) -> None:
        getattr(procrastinate_tasks, task).defer(number=number)

    def enqueue_bulk(self, task: str, count: int) -> None:
        jobs = ({"number": number} for number in range(count))
        getattr(procrastinate_tasks, task).batch_defer(*jobs)


if __name__ == "__main__":
    django.setup()
    import procrastinate_tasks

    client.main(ProcrastinateClient())
