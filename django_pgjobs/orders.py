"""Orders to workers. They are written into their rows, which they read at each heartbeat.

A notification lets them read at once; where none arrives they obey within a third of the lease.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from django_pgjobs.models import Worker
from django_pgjobs.queries import notifications
from django_pgjobs.queries.database import job_cursor, job_database

VERBS = ("quiet", "resume", "stop", "forget")
ALL = "all"
MAX_NAMED = 20


@dataclass(frozen=True)
class WorkerOrder:
    """What to do, and with which worker; *worker_id* None means with all."""

    verb: str
    worker_id: int | None

    @property
    def text(self) -> str:
        """The order as forms send it."""
        return f"{self.verb} {ALL if self.worker_id is None else self.worker_id}"

    @property
    def asks_first(self) -> bool:
        """Is it to be confirmed? What cannot be undone is, and what is done to all."""
        return self.verb == "stop" or self.worker_id is None

    def workers(self) -> QuerySet[Worker]:
        """Return the workers that are in a state for it."""
        rows = Worker.objects.all()
        if self.worker_id is not None:
            rows = rows.filter(pk=self.worker_id)
        if self.verb == "forget":
            return rows.filter(ended_at__isnull=False, lost=True)
        live = rows.filter(Worker.that_is_live(), stop_requested_at__isnull=True)
        if self.verb == "quiet":
            return live.filter(quiet_requested_at__isnull=True)
        if self.verb == "resume":
            return live.filter(quiet_requested_at__isnull=False)
        return live

    def names(self) -> list[str]:
        """Return the names of the first of these workers."""
        return list(self.workers().order_by("-pk").values_list("name", flat=True)[:MAX_NAMED])


def carry_out(order: WorkerOrder) -> list[Worker]:
    """Do it, and tell the workers when it commits; return those that it met, the oldest first."""
    with transaction.atomic(using=job_database()):
        # Those that are met are named before they are changed, or gone.
        workers = list(order.workers().only("name").order_by("pk").select_for_update())
        chosen = Worker.objects.filter(pk__in=[worker.pk for worker in workers])
        if order.verb == "quiet":
            chosen.update(quiet_requested_at=Now())
        elif order.verb == "resume":
            chosen.update(quiet_requested_at=None)
        elif order.verb == "stop":
            chosen.update(stop_requested_at=Now())
        elif order.verb == "forget":
            chosen.delete()
        if workers:
            with job_cursor() as cursor:
                notifications.notify_of_orders(cursor)
    return workers
