"""The admin: see everything, understand it, act on it.

It is on the default site as soon as `django.contrib.admin` is installed; `register(site)` puts
it on another one. The classes can be subclassed and registered instead: unregister ours first.
"""

from __future__ import annotations

from django.contrib import admin

from django_pgjobs.admin.jobs import JobAdmin
from django_pgjobs.admin.queues.limits import ConcurrencyLimitAdmin, RateLimitAdmin
from django_pgjobs.admin.queues.page import PauseAdmin, QueueSettingsAdmin
from django_pgjobs.admin.schedules.page import ScheduleAdmin
from django_pgjobs.admin.subjects import JobsOfRowMixin
from django_pgjobs.admin.tokens.page import TokenAdmin
from django_pgjobs.admin.workers.page import WorkerAdmin
from django_pgjobs.admin.workflows.page import BatchAdmin
from django_pgjobs.models import (
    Batch,
    ConcurrencyLimit,
    Job,
    Pause,
    QueueSettings,
    RateLimit,
    Schedule,
    Token,
    Worker,
)

__all__ = [
    "BatchAdmin",
    "ConcurrencyLimitAdmin",
    "JobAdmin",
    "JobsOfRowMixin",
    "PauseAdmin",
    "QueueSettingsAdmin",
    "RateLimitAdmin",
    "ScheduleAdmin",
    "TokenAdmin",
    "WorkerAdmin",
    "register",
]


def register(site: admin.AdminSite) -> None:
    """Register every page of this package on *site*."""
    site.register(Job, JobAdmin)
    site.register(Batch, BatchAdmin)
    site.register(Worker, WorkerAdmin)
    site.register(QueueSettings, QueueSettingsAdmin)
    site.register(Pause, PauseAdmin)
    site.register(ConcurrencyLimit, ConcurrencyLimitAdmin)
    site.register(RateLimit, RateLimitAdmin)
    site.register(Schedule, ScheduleAdmin)
    site.register(Token, TokenAdmin)


register(admin.site)
