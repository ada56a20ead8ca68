"""Statements on jobs that wait for other jobs.

What the end of a predecessor means is decided by `pgjobs_resolve_v1` in the database
(migrations/sql/0001/resolve.sql): when a job finishes, and when a job that waits for it is
committed after that. One call looks at a page of dependencies, so that none takes long or locks
many rows. The process that finished the job goes on, page by page; what is left if it is killed is
found by the sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_pgjobs.queries.arrays import array_text
from django_pgjobs.queries.cursor import Cursor, execute, fetch

# How many dependencies one statement resolves; the server takes about 15 ms for them.
PAGE = 1_000

# A predecessor, and the job behind which its dependencies are still to be resolved.
Position = tuple[int, int]
BEGIN: Position = (0, 0)


def check_predecessors(cursor: Cursor, ids: Sequence[int]) -> dict[int, str]:
    """Return id -> status of those of the jobs that exist."""
    return dict(fetch(cursor, "check_dependencies", {"ids": list(ids)}))


def add_dependencies(
    cursor: Cursor, ids: Sequence[int], predecessor_ids: Sequence[int], *, after_failure: str
) -> None:
    """Let each of the new jobs *ids* wait for all of *predecessor_ids*."""
    params = {
        "ids": list(ids),
        "predecessor_ids": list(predecessor_ids),
        "after_failure": after_failure,
    }
    execute(cursor, "add_dependencies", params)


def list_dependants(cursor: Cursor, ids: Sequence[int], *, max_jobs: int) -> list[int]:
    """Return the ids of up to *max_jobs* jobs that would be cancelled with those of *ids*."""
    params = {"ids": list(ids), "max_jobs": max_jobs}
    return [job_id for (job_id,) in fetch(cursor, "list_dependants", params)]


def send_resolution(cursor: Cursor, ids: Sequence[int], rest: Sequence[Position] = ()) -> None:
    """Release jobs that waited for those of *ids* that have finished, and go on with the *rest*.

    The rows say which queues they are in, and what is the rest now, as `rest_of` reads it.
    """
    predecessors = [*ids, *(predecessor_id for predecessor_id, _ in rest)]
    params = {
        "ids": array_text(predecessors),
        "behind": [None for _ in ids] + [job_id for _, job_id in rest] if rest else [],
        "max_dependencies": PAGE,
    }
    execute(cursor, "resolve_dependencies", params)


def rest_of(rows: Sequence[Any]) -> list[Position]:
    """Return where to go on: the last two columns of the rows that have them."""
    return [(row[-2], row[-1]) for row in rows if row[-2] is not None]


def resolve_dependencies(cursor: Cursor, ids: Sequence[int]) -> None:
    """Release all jobs that waited for those of *ids* that have finished."""
    send_resolution(cursor, ids)
    resolve_rest(cursor, cursor.fetchall())


def resolve_rest(cursor: Cursor, rows: Sequence[Any]) -> None:
    """Resolve what a statement has left, and what that leaves, until nothing is left."""
    while rest := rest_of(rows):
        send_resolution(cursor, [], rest)
        rows = cursor.fetchall()


def sweep_dependencies(
    cursor: Cursor, position: Position, *, max_dependencies: int, acts: bool = True
) -> Position | None:
    """Resolve a page of what was left; return where the next one begins, None at the end.

    Unless it *acts* the page is passed over.
    """
    params = {
        "predecessor_id": position[0],
        "job_id": position[1],
        "max_dependencies": max_dependencies,
    }
    rows = fetch(cursor, "sweep_dependencies", params | {"acts": acts})
    return rows[0] if rows else None
