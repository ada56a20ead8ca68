"""Statements on rate limits: taking tokens, and the states of keys."""

from __future__ import annotations

from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, execute, fetch


class Answer(NamedTuple):
    """What became of an attempt to take tokens; nothing was taken unless *taken*."""

    unknown: list[str]  # keys without a limit
    too_small: list[str]  # keys whose burst is below the cost
    least_burst: int | None
    missing: list[str]  # keys without a state
    taken: bool
    wait: float  # seconds until all tokens are there
    instant: float  # when that is, in seconds since 1970 by the server's clock


def take_rate_tokens(
    cursor: Cursor, keys: list[str], *, cost: int, timeout: float | None
) -> Answer:
    """Take *cost* tokens of each of *keys*, which are all different, or of none.

    *timeout* is how many seconds away the turn may be, None for any number.
    """
    params = {"keys": keys, "cost": cost, "timeout": timeout}
    return Answer._make(fetch(cursor, "take_rate_tokens", params)[0])


def create_rate_states(cursor: Cursor, keys: list[str]) -> None:
    """Make states, with all tokens free, for those of *keys* that have none."""
    execute(cursor, "create_rate_states", {"keys": keys})


def prune_rate_states(cursor: Cursor, *, retention: float, max_states: int) -> int:
    """Delete states whose tokens have all been free for *retention* seconds; return how many."""
    execute(cursor, "prune_rate_states", {"retention": retention, "max_states": max_states})
    return cursor.rowcount
