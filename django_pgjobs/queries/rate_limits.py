"""Statements on rate limits: taking tokens, and the states of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django_pgjobs.queries.cursor import Cursor, execute, fetch

# Lanes of jobs that are read for limits that are not there, and keys that are told.
MISSING_LANES = 10_000
MISSING_KEYS = 20


class RateAnswer(NamedTuple):
    """The result of taking tokens; nothing was taken unless *taken*."""

    unknown: list[str]  # keys without a limit
    too_small: list[str]  # keys whose burst is below the cost
    least_burst: int | None
    missing: list[str]  # keys without a state
    taken: bool
    wait: float  # seconds until all tokens are there
    instant: float  # when that is, in seconds since 1970 by the server's clock


def take_rate_tokens(
    cursor: Cursor, keys: list[str], *, cost: int, timeout: float | None
) -> RateAnswer:
    """Take *cost* tokens of each of *keys*, which are all different, or of none.

    *timeout* is how many seconds away the turn may be, None for any number.
    """
    params = {"keys": keys, "cost": cost, "timeout": timeout}
    return RateAnswer._make(fetch(cursor, "take_rate_tokens", params)[0])


def create_rate_states(cursor: Cursor, keys: list[str]) -> None:
    """Make states, with all tokens free, for those of *keys* that have none."""
    execute(cursor, "create_rate_states", {"keys": keys})


def prune_rate_states(cursor: Cursor, *, retention: float, max_states: int) -> int:
    """Delete states whose tokens have all been free for *retention* seconds; return how many."""
    execute(cursor, "prune_rate_states", {"retention": retention, "max_states": max_states})
    return cursor.rowcount


class MissingRate(NamedTuple):
    """A key without a rate limit, or with one whose burst is below what a start takes (*cost*).

    *has_jobs*: ready jobs wait for it and can never start.
    """

    key: str
    has_jobs: bool
    # None: there is none.
    limit_name: str | None = None
    burst: int | None = None
    cost: int | None = None

    @property
    def name(self) -> str:
        """The name of the limit, or of that which is to be made."""
        return self.limit_name or self.key.partition(":")[0]


def send_missing_rates(cursor: Cursor) -> None:
    """Ask which rate limits let jobs wait for ever; the rows are MissingRate."""
    execute(cursor, "list_missing_rates", missing_rates_params({}, MISSING_LANES))


def missing_rates_params(named: Mapping[str, int], max_lanes: int) -> dict[str, Any]:
    """Return the parameters of a statement that lists such limits.

    *named* are limits that tasks name, and the most that a start takes of them.
    """
    return {
        "names": list(named),
        "costs": list(named.values()),
        "max_lanes": max_lanes,
        "max_keys": MISSING_KEYS,
    }


def list_missing_rates(cursor: Cursor, named: Mapping[str, int]) -> list[MissingRate]:
    """Return which of the *named* limits, and of those that ready jobs wait for, never let one
    start."""
    params = missing_rates_params(named, MISSING_LANES)
    return [MissingRate._make(row) for row in fetch(cursor, "list_missing_rates", params)]
