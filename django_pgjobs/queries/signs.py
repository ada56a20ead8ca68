"""What the warnings of the Overview are judged by, beside the numbers that it shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch


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


class Failing(NamedTuple):
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
    """How many jobs of a queue were ready at a time, in seconds since 1970; *is_cut*: or more."""

    queue_name: str
    ready: int
    is_cut: bool
    measured_at: float


class Signs(NamedTuple):
    """What was read; the backlogs of each queue by time."""

    crews: list[Crew]
    failing: list[Failing]
    mutes: list[MuteRow]
    backlogs: dict[str, list[Backlog]]


def list_signs(
    cursor: Cursor,
    *,
    recent: float,
    least: int,
    max_jobs: int,
    max_rows: int,
    queue_names: Sequence[str],
    sampled: float,
) -> Signs:
    """Return what live workers do, the tasks of which at least *least* jobs failed, and the mutes.

    Failures of the last *recent* seconds are counted. The backlogs are those of *queue_names* in
    the last *sampled* seconds.
    """
    params = {
        "recent": recent,
        "least": least,
        "max_jobs": max_jobs,
        "max_rows": max_rows,
        "queue_names": list(queue_names),
        "sampled": sampled,
    }
    [(crews, failing, mutes, samples)] = fetch(cursor, "list_signs", params)
    backlogs: dict[str, list[Backlog]] = {}
    for sample in _decoded(samples):
        backlogs.setdefault(sample["queue_name"], []).append(Backlog(**sample))
    return Signs(
        [Crew(**crew) for crew in _decoded(crews)],
        [
            Failing(**task | {"since": datetime.fromtimestamp(task["since"], UTC)})
            for task in _decoded(failing)
        ],
        [
            MuteRow(**mute | {"until": datetime.fromtimestamp(mute["until"], UTC)})
            for mute in _decoded(mutes)
        ],
        backlogs,
    )


class Ended(NamedTuple):
    """How many jobs of a task ended."""

    successful: int
    failed: int


def sum_ended(cursor: Cursor, *, earliest: float, latest: float) -> dict[str, Ended]:
    """Return what ended from *earliest* to *latest* seconds ago, by task."""
    params = {"earliest": earliest, "latest": latest}
    rows = fetch(cursor, "sum_ended_by_task", params)
    return {task_path: Ended(successful, failed) for task_path, successful, failed in rows}


def _decoded(value: Any) -> Any:
    """Return JSON as Python; which connections decode it themselves is a setting of theirs."""
    return json.loads(value) if isinstance(value, str) else value
