"""Enqueue with django_pgjobs; bulk is `enqueue_many`."""

from __future__ import annotations

import client
import django
from django.core.management import call_command
from django.db import transaction


class OursClient(client.Client):
    def setup(self) -> None:
        call_command("migrate", run_syncdb=True, verbosity=0)

    def enqueue(self, task: str, number: int) -> None:
        getattr(ours_tasks, task).enqueue(number)

    def enqueue_bulk(self, task: str, count: int) -> None:
        with transaction.atomic():
            getattr(ours_tasks, task).enqueue_many((number,) for number in range(count))


if __name__ == "__main__":
    django.setup()
    import ours_tasks

    client.main(OursClient())
