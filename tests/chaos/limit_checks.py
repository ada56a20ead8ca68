"""Checks of limits by the ledger: how many, in which order, how fast, one of a kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from tests.chaos.ledger import Change, Limit

# How much later than its commit a change may become visible, at most: a commit that waits for
# a follower. Within it nobody can say which of two changes another one saw.
SLACK_SECONDS = 3.0


class Limits:
    """How many may run, over time: rows of the table, by name."""

    def __init__(self, kind: str, limits: Iterable[Limit]) -> None:
        self._rows: dict[str, list[Limit]] = defaultdict(list)
        for limit in limits:
            if limit.kind == kind:
                self._rows[limit.name].append(limit)

    def most(self, name: str, since: float, until: float) -> int | None:
        """Return the highest limit in force at any time from *since* to *until*, None without."""
        rows = self._rows.get(name, [])
        values = []
        ends_of = [*(row.committed for row in rows[1:]), float("inf")]
        for row, ends in zip(rows, ends_of, strict=False):
            if row.committed <= until and ends + SLACK_SECONDS >= since:
                values.append(row.max_running)
        if not values or None in values:
            return None
        return max(value for value in values if value is not None)


def find_crowds(
    changes: Sequence[Change],
    limits: Limits,
    *,
    group: Callable[[Change], str | None],
    default: Callable[[Change], int | None],
) -> list[str]:
    """Return the claims that made more jobs of a group run than its limit.

    A claim counts; a job that runs already when a limit is lowered does not.
    """
    running: dict[str, set[int]] = defaultdict(set)
    places: dict[int, str] = {}
    found = []
    for change in changes:
        was = places.pop(change.job, None)
        if was is not None:
            running[was].discard(change.job)
        place = group(change)
        if change.status != "running" or place is None:
            continue
        running[place].add(change.job)
        places[change.job] = place
        if was is not None:
            continue
        most = limits.most(place, change.asked, change.committed)
        most = default(change) if most is None else most
        if most is not None and len(running[place]) > most:
            found.append(
                f"{sorted(running[place])} run at once in {place}, whose limit is {most}, "
                f"since the claim of {change.job} at {change.committed:.3f}"
            )
    return found


def find_disorder(changes: Sequence[Change], limits: Limits) -> list[str]:
    """Return the claims of jobs of a key with limit 1 while an older one was next."""
    line: dict[str, dict[int, float]] = defaultdict(dict)
    status: dict[int, str] = {}
    found = []
    for change in changes:
        key = change.concurrency_key
        if key is None:
            continue
        is_claim = change.status == "running" and status.get(change.job) != "running"
        is_one = limits.most(key, change.asked, change.committed) is None and (
            change.concurrency_limit in (None, 1)
        )
        if is_claim and is_one and not change.skips_waiting:
            older = [
                job
                for job, since in line[key].items()
                if job < change.job and since + SLACK_SECONDS < change.asked
            ]
            if older:
                found.append(f"{change.job} of {key} overtakes {older} at {change.committed:.3f}")
        status[change.job] = change.status
        if change.is_in_line:
            line[key].setdefault(change.job, change.committed)
        else:
            line[key].pop(change.job, None)
    return found


def find_haste(changes: Sequence[Change], count: int, period: float) -> list[str]:
    """Return the windows in which more tokens of a rate limit were taken than *count*.

    A claim takes its tokens at some instant between `asked` and `made`; only what must lie
    within less than *period* seconds is found.
    """
    starts: dict[str, list[Change]] = defaultdict(list)
    status: dict[int, str] = {}
    for change in changes:
        is_claim = change.status == "running" and status.get(change.job) != "running"
        if is_claim and change.rate_limit_keys is not None:
            starts[change.rate_limit_keys].append(change)
        status[change.job] = change.status
    found = []
    for key, claims in starts.items():
        claims.sort(key=lambda change: change.asked)
        for first, claim in enumerate(claims):
            within = [c for c in claims[first:] if c.made - claim.asked < period]
            tokens = sum(c.rate_cost for c in within)
            if tokens > count:
                found.append(f"{tokens} of {key} within {period:g} s from {claim.asked:.3f}")
                break
    return found


def find_twins(changes: Sequence[Change]) -> list[str]:
    """Return the unfinished jobs of a task that share a unique key."""
    holders: dict[tuple[str, str], set[int]] = defaultdict(set)
    found = []
    for change in changes:
        if change.unique_key is None:
            continue
        place = (change.task_path, change.unique_key)
        holds = not change.is_finished and (change.claim == 0 or not change.unique_until_claimed)
        if not holds:
            holders[place].discard(change.job)
            continue
        is_new = change.job not in holders[place]
        holders[place].add(change.job)
        if is_new and len(holders[place]) > 1:
            found.append(f"{sorted(holders[place])} share the unique key {place}")
    return found
