"""Sentry's crons: each occurrence of a schedule checks in when its job has ended.

The monitor of a schedule is made by its first check-in, from the row. Sentry tells who listens
when one stays out or says that it failed.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from functools import cache
from typing import Any

from django_pgjobs.conf import get_conf
from django_pgjobs.queries import schedules
from django_pgjobs.queries.database import job_cursor
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

LACKING = (
    "PGJOBS['SENTRY_CHECK_INS'] is on, but sentry_sdk.crons cannot be imported: no schedule checks "
    "in. pip install sentry-sdk, or turn it off."
)
# What Sentry takes as the name of a monitor.
MAX_SLUG = 50
NOT_IN_SLUG = re.compile(r"[^a-z0-9_-]+")
# The finest that Sentry watches, and how much later than that is late: a queue may be long.
FINEST_SECONDS = 60
MARGIN_MINUTES = 5
# So that every attempt of an occurrence has the same id.
NAMESPACE = uuid.UUID("5a3e1e0c-6a2f-4a53-9a0a-3f3a8b1d0c52")


def wants_check_in(attempt: Attempt, outcome: Outcome) -> bool:
    """Has a job of a schedule ended for good, and do the settings say that Sentry is to know?"""
    is_scheduled = attempt.scheduled is not None and outcome.status is not None
    return is_scheduled and get_conf().SENTRY_CHECK_INS


def send_check_in(attempt: Attempt, outcome: Outcome) -> None:
    """Tell Sentry how the occurrence of a job ended; what raises is logged."""
    try:
        _send(attempt, outcome)
    except ImportError:
        _tell_that_it_lacks()
    except Exception:
        logger.of(attempt).exception(
            "Sentry was not told of schedule and time %s", attempt.scheduled
        )


@cache
def _tell_that_it_lacks() -> None:
    """Say in the log that no check-in is sent, once in the life of the process."""
    logger.error(LACKING)


def _send(attempt: Attempt, outcome: Outcome) -> None:
    name, instant = json.loads(attempt.scheduled or "")
    with job_cursor() as cursor:
        config: Any = monitor_of(schedules.get_when(cursor, name))
    if config is None:
        return
    # A check says it to a project that turns this on without the package.
    from sentry_sdk.crons import capture_checkin

    capture_checkin(
        monitor_slug=slug_of(name),
        check_in_id=uuid.uuid5(NAMESPACE, f"{name}\n{instant}").hex,
        status="ok" if outcome.kind is Kind.DONE else "error",
        duration=outcome.duration,
        monitor_config=config,
    )


def monitor_of(when: schedules.TimingColumns | None) -> dict[str, Any] | None:
    """Return what Sentry is to expect, None if it cannot: below a minute, or the row is gone."""
    if when is None:
        return None
    if when.cron is not None:
        is_finer = len(when.cron.split()) > 5
        schedule: dict[str, Any] = {"type": "crontab", "value": when.cron}
        return None if is_finer else _config(schedule) | {"timezone": when.timezone}
    if not when.every or when.every % FINEST_SECONDS:
        return None
    minutes = int(when.every / FINEST_SECONDS)
    return _config({"type": "interval", "value": minutes, "unit": "minute"})


def _config(schedule: dict[str, Any]) -> dict[str, Any]:
    return {"schedule": schedule, "checkin_margin": MARGIN_MINUTES}


def slug_of(name: str) -> str:
    """Return the name of a schedule as Sentry takes it.

    One that had to be changed says of which it is, as two may become the same.
    """
    slug = NOT_IN_SLUG.sub("-", name.lower()).strip("-")
    if slug == name and len(slug) <= MAX_SLUG:
        return slug
    digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
    return f"{slug[: MAX_SLUG - len(digest) - 1].strip('-')}-{digest}".strip("-")
