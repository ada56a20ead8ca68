"""How an integration is doing, read from the rows of its jobs and deliveries."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from django_pgjobs.models import Job
from example_project.integrations.limits import concurrency_key
from example_project.integrations.models import Delivery, Integration

SHOWN = 10


@dataclass(frozen=True, slots=True)
class Status:
    """What the customer may know; *waiting* includes *later* and *retrying*."""

    waiting: int
    later: int
    retrying: int
    running: int
    merged: int  # edits that wait as part of another one's job
    failed: int
    failures: list[Job]  # the newest
    delivered: int
    deliveries: list[Delivery]  # the newest

    @property
    def last_error(self) -> str:
        """What the outside API said when it refused something last."""
        errors: list[dict[str, Any]] = self.failures[0].errors if self.failures else []
        return str(errors[-1]["message"]) if errors else ""

    @property
    def is_busy(self) -> bool:
        """Is there anything left to do?"""
        return bool(self.waiting or self.running)


def jobs_of(integration: Integration) -> QuerySet[Job]:
    """Return the jobs of an integration: whatever they are, they share its key."""
    return Job.objects.filter(concurrency_key=concurrency_key(integration.pk))


def status_of(integration: Integration) -> Status:
    """Return how an integration is doing."""
    jobs = jobs_of(integration)
    put_off = Q(due_at__isnull=False)
    counts = jobs.filter(status="ready").aggregate(
        waiting=Count("pk"),
        later=Count("pk", filter=put_off & Q(attempts=0)),
        retrying=Count("pk", filter=put_off & Q(attempts__gt=0)),
        merged=Sum("merged_count", default=0),
    )
    failed = jobs.filter(status="failed")
    deliveries = integration.deliveries.select_related("product").order_by("-delivered_at")
    return Status(
        **counts,
        running=jobs.filter(status="running").count(),
        failed=failed.count(),
        failures=list(failed.order_by("-finished_at")[:SHOWN]),
        delivered=integration.deliveries.count(),
        deliveries=list(deliveries[:SHOWN]),
    )


def unfinished_by_key() -> Counter[str]:
    """Return concurrency key -> how many jobs of it wait or run."""
    jobs = Job.objects.filter(
        status__in=("ready", "running"), concurrency_key__startswith="integration:"
    )
    return Counter(dict(jobs.values_list("concurrency_key").annotate(jobs=Count("pk"))))
