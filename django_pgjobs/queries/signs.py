"""What the warnings of the Overview are judged by, beside the numbers that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django_pgjobs.queries.cursor import Cursor, decoded, fetch
from django_pgjobs.queries.numbers import CLOSING_SECONDS


class Crew(NamedTuple):
    """Live workers that take the same jobs: all their slots, and the jobs in them or before them.

    Workers that were asked to claim nothing are not among them.
    """

    backends: list[str]
    queues: list[str] | None
    excluded_queues: list[str]
    slots: int
    running: int

    def takes(self, queue_name: str) -> bool:
        """Do they take jobs of the queue, of some backend?"""
        is_named = self.queues is None or queue_name in self.queues
        return is_named and queue_name not in self.excluded_queues


class FailingTask(NamedTuple):
    """A task of which jobs failed since then: how many did, how many succeeded."""

    task_path: str
    since: datetime
    failed: int
    successful: int


class MuteRow(NamedTuple):
    """A warning that is muted."""

    kind: str
    subject: str
    reason: str
    muted_by: str
    until: datetime


class Backlog(NamedTuple):
    """How many jobs of a queue were ready, by time, from the first sample to the last.

    *is_cut*: there were more, at some time.
    """

    ready: list[int]
    seconds: float
    is_cut: bool


class RateLimitedQueue(NamedTuple):
    """How many ready jobs of a queue wait for a rate limit that lets none go.

    *others_since*: since when the oldest of its other ready jobs has waited, None without any.
    """

    jobs: int
    others_since: datetime | None


class Signs(NamedTuple):
    """What was read; the backlog of each queue, and what waits in vain in it."""

    crews: list[Crew]
    failing: list[FailingTask]
    mutes: list[MuteRow]
    backlogs: dict[str, Backlog]
    vain: dict[str, RateLimitedQueue] = {}


def list_signs(
    cursor: Cursor,
    *,
    recent: float,
    least: int,
    max_jobs: int,
    max_rows: int,
    queue_names: Sequence[str],
    sampled: float,
    max_live: int,
) -> Signs:
    """Return what live workers do, the tasks of which at least *least* jobs failed, and the mutes.

    Failures of the last *recent* seconds are counted, from the beginning of the minute on. The
    backlogs are those of *queue_names* in the last *sampled* seconds. Of live jobs the *max_live*
    oldest are looked at for such as wait for a rate limit that lets none go.
    """
    params = {
        "recent": recent,
        "least": least,
        "max_jobs": max_jobs,
        "max_rows": max_rows,
        "queue_names": list(queue_names),
        "sampled": sampled,
        "max_live": max_live,
        "closing": CLOSING_SECONDS,
    }
    [(crews, failing, mutes, backlogs, vain)] = fetch(cursor, "list_signs", params)
    return Signs(
        [Crew(**crew) for crew in decoded(crews)],
        [FailingTask(**task | {"since": _instant(task["since"])}) for task in decoded(failing)],
        [MuteRow(**mute | {"until": _instant(mute["until"])}) for mute in decoded(mutes)],
        {row.pop("queue_name"): Backlog(**row) for row in decoded(backlogs)},
        _vain_of(vain),
    )


def _vain_of(rows: Any) -> dict[str, RateLimitedQueue]:
    found = {}
    for row in decoded(rows):
        since = row["others_since"]
        found[row["queue_name"]] = RateLimitedQueue(
            row["jobs"], None if since is None else _instant(since)
        )
    return found


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class Ended(NamedTuple):
    """How many jobs of a task ended."""

    successful: int
    failed: int


def sum_ended(cursor: Cursor, *, earliest: float, latest: float) -> dict[str, Ended]:
    """Return what ended from *earliest* to *latest* seconds ago, by task."""
    params = {"earliest": earliest, "latest": latest, "by_task": True}
    rows = fetch(cursor, "sum_ended_by_task", params)
    return {task_path: Ended(successful, failed) for task_path, successful, failed in rows}
