"""What the page of one job shows beside the job: its neighbours, and the runs of its task."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch

# How many jobs before and after one are named.
MAX_NEIGHBOURS = 50
# How many finished jobs of its task are shown, out of how many finished jobs of all tasks.
MAX_RUNS = 20
MAX_LOOKED_AT = 10_000


class Neighbour(NamedTuple):
    """A job that this one waits for, or that waits for it; without a status it is gone."""

    id: int
    status: str | None
    task_path: str | None


class PastRun(NamedTuple):
    """A finished job of the same task; *seconds* is how long its newest attempt took."""

    id: int
    status: str
    seconds: float | None


class Surroundings(NamedTuple):
    """What describe_job.sql returns."""

    waits_for: list[Neighbour]
    waited_for_by: list[Neighbour]
    runs: list[PastRun]
    twin_id: int | None
    limit_pattern: str | None
    limit: int | None
    worker_name: str | None


def describe_job(
    cursor: Cursor,
    job_id: int,
    *,
    task_path: str,
    unique_key: str | None,
    concurrency_key: str | None,
    worker_id: int | None,
) -> Surroundings:
    """Return what is around a job, by the values that its row has."""
    params = {
        "id": job_id,
        "task_path": task_path,
        "unique_key": unique_key,
        "concurrency_key": concurrency_key,
        "worker_id": worker_id,
        "max_neighbours": MAX_NEIGHBOURS,
        "max_runs": MAX_RUNS,
        "max_looked_at": MAX_LOOKED_AT,
    }
    [(before, after, runs, *rest)] = fetch(cursor, "describe_job", params)
    return Surroundings(
        [Neighbour._make(entry) for entry in _list(before)],
        [Neighbour._make(entry) for entry in _list(after)],
        [PastRun._make(entry) for entry in _list(runs)],
        *rest,
    )


def _list(text: str | None) -> list[list[Any]]:
    found: list[list[Any]] = json.loads(text or "[]")
    return found
