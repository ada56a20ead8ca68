"""What the warnings of the Overview are judged by, beside the numbers that it shows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django_pgjobs.queries.control import PauseRow
from django_pgjobs.queries.cursor import Cursor, decoded, fetch
from django_pgjobs.queries.numbers import CLOSING_SECONDS
from django_pgjobs.queries.rate_limits import MissingRate, missing_rates_params
from django_pgjobs.queries.stuck import LongRun
from django_pgjobs.values import notes

# What is looked at for tasks that no worker knows, and for the jobs that have waited longest. A
# worker puts a job off for so long at most.
LOOKED_AT = {
    "max_next": 10,
    "max_old": 1_000,
    "max_due": 1_000,
    "within_seconds": 300.0,
    "notes": [notes.UNKNOWN_TASK, notes.REMOTE_TASK],
}


class Crew(NamedTuple):
    """Live workers that take the same jobs: all their slots, and the jobs in them or before them.

    *is_quiet*: they were asked to claim nothing, or to stop.
    """

    backends: list[str]
    queues: list[str] | None
    excluded_queues: list[str]
    slots: int
    running: int
    is_quiet: bool = False

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


class UnknownPath(NamedTuple):
    """A task that no live worker knows which serves the queue that a job of it waits in."""

    queue_name: str
    task_path: str


class OldestJob(NamedTuple):
    """The job of a queue that has waited longest, of those that no pause keeps.

    *has_keys*: a concurrency key or a rate limit may keep it.
    """

    queue_name: str
    id: int
    since: datetime
    has_keys: bool


class HeldJobs(NamedTuple):
    """How many of the oldest live jobs wait for a decision, as a predecessor failed.

    *first_id* is one of them, None without any.
    """

    number: int = 0
    first_id: int | None = None


class Signs(NamedTuple):
    """What was read; the backlog of each queue, and what waits in vain in it.

    Behind them what `list_missing_rates` and `list_long_runs` return.
    """

    crews: list[Crew]
    failing: list[FailingTask]
    mutes: list[MuteRow]
    pauses: list[PauseRow]
    backlogs: dict[str, Backlog]
    vain: dict[str, RateLimitedQueue] = {}
    unknown: Sequence[UnknownPath] = ()
    oldest: Sequence[OldestJob] = ()
    held: HeldJobs = HeldJobs()
    missing_rates: Sequence[MissingRate] = ()
    long_runs: Sequence[LongRun] = ()


def list_signs(
    cursor: Cursor,
    *,
    recent: float,
    least: int,
    max_jobs: int,
    max_rows: int,
    queue_names: Sequence[str],
    waiting_names: Sequence[str],
    sampled: float,
    max_live: int,
    max_lanes: int,
    long_seconds: float,
    max_runs: int,
) -> Signs:
    """Return what live workers do, the tasks of which at least *least* jobs failed, and more.

    Failures of the last *recent* seconds are counted, from the beginning of the minute on. The
    backlogs are those of *queue_names* in the last *sampled* seconds. Of live jobs the *max_live*
    oldest are looked at for such as wait for a rate limit that lets none go, of *max_lanes* lanes.
    Of *waiting_names* the oldest jobs are wanted, and *max_runs* that have run for *long_seconds*.
    """
    params = {
        "recent": recent,
        "least": least,
        "max_jobs": max_jobs,
        "max_rows": max_rows,
        "queue_names": list(queue_names),
        "waiting_names": list(waiting_names),
        "sampled": sampled,
        "max_live": max_live,
        "closing": CLOSING_SECONDS,
        "long_seconds": long_seconds,
        "ids": None,
        "max_runs": max_runs,
        **LOOKED_AT,
        **missing_rates_params({}, max_lanes),
    }
    [row] = fetch(cursor, "list_signs", params)
    return _signs_of(*map(decoded, row))


def _signs_of(
    crews: Any,
    failing: Any,
    mutes: Any,
    pauses: Any,
    backlogs: Any,
    vain: Any,
    unknown: Any,
    oldest: Any,
    held: Any,
    missing: Any,
    runs: Any,
) -> Signs:
    return Signs(
        [Crew(**crew) for crew in crews],
        [FailingTask(**task | {"since": _instant(task["since"])}) for task in failing],
        [MuteRow(**mute | {"until": _instant(mute["until"])}) for mute in mutes],
        [_pause_of(**pause) for pause in pauses],
        {row.pop("queue_name"): Backlog(**row) for row in backlogs},
        _vain_of(vain),
        [UnknownPath(**row) for row in unknown],
        [OldestJob(**row | {"since": _instant(row["since"])}) for row in oldest],
        HeldJobs(**held),
        [MissingRate(**row) for row in missing],
        [LongRun(**run | {"now": datetime.fromisoformat(run["now"])}) for run in runs],
    )


def _pause_of(*, paused_at: float, resume_at: float | None, **columns: str) -> PauseRow:
    ends = None if resume_at is None else _instant(resume_at)
    return PauseRow(**columns, paused_at=_instant(paused_at), resume_at=ends)


def _vain_of(rows: Any) -> dict[str, RateLimitedQueue]:
    found = {}
    for row in rows:
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


class Past(NamedTuple):
    """What was usual, by task: how many attempts ran how long, by classes, and what *ended*."""

    runs: dict[str, list[int]]
    ended: dict[str, Ended]


def list_past(cursor: Cursor, *, seconds: float, earliest: float, latest: float) -> Past:
    """Return the attempts of the last *seconds*, and what ended *earliest* to *latest* ago."""
    params = {"seconds": seconds, "earliest": earliest, "latest": latest, "by_task": True}
    rows = fetch(cursor, "list_past", params)
    ended = {path: Ended(good, bad) for path, _, good, bad in rows if good or bad}
    return Past({path: runs for path, runs, _, _ in rows}, ended)
