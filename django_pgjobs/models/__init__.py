"""The models: jobs and batches, workers, bulk changes, and what decides when a job may start."""

from __future__ import annotations

from django_pgjobs.control.explanation import Explanation, Reason
from django_pgjobs.models.batches import Batch
from django_pgjobs.models.bulk import BulkChange
from django_pgjobs.models.control import (
    ConcurrencyLimit,
    Dependency,
    Pause,
    QueueSettings,
    RateLimit,
    RateState,
)
from django_pgjobs.models.jobs import Job
from django_pgjobs.models.schedules import Occurrence, Schedule
from django_pgjobs.models.statistics import QueueSample, Statistic, StatisticSum
from django_pgjobs.models.tokens import Token
from django_pgjobs.models.watching import Mute, Stack
from django_pgjobs.models.workers import Worker

__all__ = [
    "Batch",
    "BulkChange",
    "ConcurrencyLimit",
    "Dependency",
    "Explanation",
    "Job",
    "Mute",
    "Occurrence",
    "Pause",
    "QueueSample",
    "QueueSettings",
    "RateLimit",
    "RateState",
    "Reason",
    "Schedule",
    "Stack",
    "Statistic",
    "StatisticSum",
    "Token",
    "Worker",
]
