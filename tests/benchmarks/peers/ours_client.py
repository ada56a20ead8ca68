"""Enqueue with django_pgjobs; bulk is `enqueue_many`."""

from __future__ import annotations

import client
import django
from django.core.management import call_command
from django.db import transaction

from django_pgjobs import workflow


class OursClient(client.Client):
    def setup(self) -> None:
        call_command("migrate", run_syncdb=True, verbosity=0)

    def enqueue(self, task: str, number: int) -> None:
        getattr(ours_tasks, task).enqueue(number)

    def enqueue_bulk(self, task: str, count: int) -> None:
        """Enqueue jobs; those of "noop@20" are in 20 queues, of "noop@20p" in 20 priorities."""
        if task in ("batch", "tree"):
            enqueue_workflow(task, count)
            return
        name, _, places = task.partition("@")
        declared = getattr(ours_tasks, name)
        with transaction.atomic():
            if not places:
                declared.enqueue_many((number,) for number in range(count))
                return
            number_of = int(places.removesuffix("p"))
            for place in range(number_of):
                there = (
                    declared.using(priority=place % 201 - 100)
                    if places.endswith("p")
                    else declared.using(queue_name=f"queue-{place}")
                )
                there.enqueue_many((number,) for number in range(place, count, number_of))


def enqueue_workflow(kind: str, count: int) -> None:
    """Add jobs to one batch; of a "tree" a third, of which the others are made, level by level."""
    with workflow(kind) as flow:
        if kind == "tree":
            flow.each(ours_tasks.step.s()).each(ours_tasks.step.s())
            count //= 3
        flow.add_many(ours_tasks.step, ((number,) for number in range(count)))


if __name__ == "__main__":
    django.setup()
    import ours_tasks

    client.main(OursClient())
