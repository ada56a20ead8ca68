"""The times of one job as a line, and how the newest jobs of its task went."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from django_pgjobs.models import Job
from django_pgjobs.queries.job_page import MAX_LOOKED_AT, PastRun


class Moment(NamedTuple):
    """A moment in the life of a job; *gap* is the seconds since the one before, or None."""

    label: str
    at: datetime
    gap: float | None


class Lately(NamedTuple):
    """The newest finished jobs of a task, and what their newest attempts took, in seconds."""

    runs: Sequence[PastRun]
    median: float | None
    p95: float | None
    looked_at: int


def timeline(job: Job) -> list[Moment]:
    """Return what happened to a job, in order; a gap is never negative."""
    due = job.due_at or job.run_after
    is_retried = job.last_attempted_at != job.started_at
    moments: list[tuple[str, datetime | None]] = [
        (_("Enqueued"), job.enqueued_at),
        # A due time after an attempt is that of the next one.
        (_("Due"), None if job.attempts else due),
        (_("Ready"), _ready_before_start(job)),
        (_("Started"), job.started_at),
        (
            _("Attempt %(number)s") % {"number": job.attempts},
            job.last_attempted_at if is_retried else None,
        ),
        (_("Cancel requested"), job.cancel_requested_at),
        (_("Finished"), job.finished_at),
        (_("Expires"), job.expires_at if job.finished_at is None else None),
        (_("Next attempt due"), job.due_at if job.attempts and job.finished_at is None else None),
    ]
    found: list[Moment] = []
    for label, at in moments:
        if at is not None:
            gap = max(0.0, (at - found[-1].at).total_seconds()) if found else None
            found.append(Moment(label, at, gap))
    return found


def _ready_before_start(job: Job) -> datetime | None:
    """Return since when a job that began could run, if that was later than its enqueue."""
    since = job.waiting_since
    is_between = job.started_at is not None and job.enqueued_at < since <= job.started_at
    return since if is_between else None


def lately(runs: Sequence[PastRun]) -> Lately:
    """Return what the newest runs of a task say of it."""
    seconds = sorted(
        max(0.0, run.seconds) for run in runs if is_finite(run.seconds) and run.seconds is not None
    )
    if not seconds:
        return Lately(runs, None, None, MAX_LOOKED_AT)
    p95 = seconds[math.ceil(len(seconds) * 0.95) - 1]
    return Lately(runs, statistics.median(seconds), p95, MAX_LOOKED_AT)


def is_finite(value: Any) -> bool:
    """Is *value* a number that can be calculated with? Raw rows hold others."""
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
