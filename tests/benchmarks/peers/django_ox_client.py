"""Enqueue with django-ox; bulk is its `enqueue_many`."""

from __future__ import annotations

import client
import django
from django.core.management import call_command


class DjangoOxClient(client.Client):
    def setup(self) -> None:
        call_command("migrate", run_syncdb=True, verbosity=0)

    def enqueue(self, task: str, number: int) -> None:
        getattr(core_tasks, task).enqueue(number)

    def enqueue_bulk(self, task: str, count: int) -> None:
        enqueue_many(getattr(core_tasks, task), (((number,), {}) for number in range(count)))


if __name__ == "__main__":
    django.setup()
    import core_tasks
    from django_ox.bulk import enqueue_many

    client.main(DjangoOxClient())
