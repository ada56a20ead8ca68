"""Statements on jobs that wait for other jobs.

What it means that a predecessor has ended is decided by `pgjobs_resolve_v1` in the database
(migrations/sql/0001/resolve.sql), for whoever finishes a job and for whoever commits a dependency
too late.
"""

from __future__ import annotations

from collections.abc import Sequence

from django_pgjobs.queries.cursor import Cursor, execute, fetch

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


def resolve_dependencies(cursor: Cursor, ids: Sequence[int]) -> None:
    """Let the jobs go on that waited for those of *ids* that have finished."""
    execute(cursor, "resolve_dependencies", {"ids": "{" + ",".join(map(str, ids)) + "}"})


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
