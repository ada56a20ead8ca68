"""Enqueue with django-tasks-db; it has no bulk API, so bulk is a loop in one transaction."""

from __future__ import annotations

import client
import django
from django.core.management import call_command
from django.db import transaction


class DjangoTasksDbClient(client.Client):
    def setup(self) -> None:
        call_command("migrate", run_syncdb=True, verbosity=0)

    def enqueue(self, task: str, number: int) -> None:
        getattr(core_tasks, task).enqueue(number)

    def enqueue_bulk(self, task: str, count: int) -> None:
        with transaction.atomic():
            self.enqueue_each(task, count)


if __name__ == "__main__":
    django.setup()
    import core_tasks

    client.main(DjangoTasksDbClient())
