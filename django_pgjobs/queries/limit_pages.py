"""Questions of the page Limits. What is counted is counted up to a bound."""

from __future__ import annotations

from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch

MAX_LIMITS = 100
# Waiting jobs with keys that a statement reads.
MAX_JOBS = 20_000
MAX_RUNNING = 20_000
# States of rate limits that a statement reads, of all limits together.
MAX_STATES = 20_000
# Keys that are shown: of each limit, and of all together.
MAX_KEYS = 20
MAX_KEYS_IN_ALL = 150


class RateKeyRow(NamedTuple):
    """A key of a rate limit; without a limit *name* and what follows from it are None."""

    name: str | None
    key: str
    jobs: int
    tokens: float | None
    next_in: float | None
    full_in: float
    jobs_of_limit: int
    keys: int


def list_rate_keys(cursor: Cursor, *, limits: int) -> dict[str | None, list[RateKeyRow]]:
    """Return name of a limit -> its keys; under None those that no limit is for.

    *limits* is how many limits there are: they share what is read and shown.
    """
    shares = max(1, min(limits, MAX_LIMITS))
    params = {
        "max_jobs": MAX_JOBS,
        "max_limits": MAX_LIMITS,
        "max_states": MAX_STATES // shares,
        "max_keys": max(1, min(MAX_KEYS, MAX_KEYS_IN_ALL // shares)),
    }
    found: dict[str | None, list[RateKeyRow]] = {}
    for row in fetch(cursor, "list_rate_keys", params):
        found.setdefault(row[0], []).append(RateKeyRow._make(row))
    return found


class ConcurrencyKeyRow(NamedTuple):
    """A concurrency key; *pattern* is the row that limits it, None if its task does."""

    key: str
    waiting: int
    running: int
    max_running: int
    pattern: str | None
    is_paused: bool


def list_concurrency_keys(cursor: Cursor) -> list[ConcurrencyKeyRow]:
    """Return the keys with most waiting jobs, at most MAX_KEYS."""
    params = {"max_jobs": MAX_JOBS, "max_running": MAX_RUNNING, "max_keys": MAX_KEYS}
    return [ConcurrencyKeyRow._make(row) for row in fetch(cursor, "list_concurrency_keys", params)]
