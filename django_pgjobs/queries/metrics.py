"""Queries of the metrics that no page needs."""

from __future__ import annotations

from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch
from django_pgjobs.queries.schedules import LATE_SECONDS

MAX_SCHEDULES = 200


class Delay(NamedTuple):
    """By how many seconds a schedule is late, and what is wrong with it."""

    name: str
    seconds: float
    has_error: bool
    has_failed: bool


class EndedAttempts(NamedTuple):
    """How many attempts of a queue and task ended in each way."""

    queue_name: str
    task_path: str
    successful: int
    failed: int
    cancelled: int
    retried: int
    lost: int


def list_ended_attempts(cursor: Cursor, minutes: range) -> list[EndedAttempts]:
    """Return how attempts ended in minutes that are given by their numbers since 1970."""
    params = {"first": minutes.start, "last": minutes.stop}
    return [EndedAttempts._make(row) for row in fetch(cursor, "list_ended_attempts", params)]


def list_delays(cursor: Cursor) -> list[Delay]:
    """Return the schedules in force, those in trouble first, at most MAX_SCHEDULES."""
    params = {"max_schedules": MAX_SCHEDULES, "late": LATE_SECONDS}
    return [Delay._make(row) for row in fetch(cursor, "list_schedule_delays", params)]
