"""Statements on workers and their leases."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from django_pgjobs.queries.cursor import Cursor, execute, fetch


class Renewal(NamedTuple):
    """What a renewed lease tells of the others, and what is asked of the worker."""

    is_leader: bool
    next_expiry: float | None
    is_quiet: bool
    is_stopping: bool


class Registration(TypedDict):
    """The row that a worker enters for itself.

    *queues* None: all; *lease* in seconds; *quiet*: it was asked to claim nothing, in a row
    whose lease was lost; *token_id* is of a worker over HTTP.
    """

    name: str
    host: str
    pid: int
    version: str
    slots: int
    queues: list[str] | None
    excluded_queues: list[str]
    backends: list[str]
    task_paths: list[str]
    schedule_names: list[str]
    lease: float
    quiet: bool
    token_id: int | None


def register_worker(cursor: Cursor, row: Registration) -> int:
    """Enter a worker and start its lease; return its id."""
    [(worker_id,)] = fetch(cursor, "register_worker", row)
    return int(worker_id)


def renew_lease(cursor: Cursor, worker_id: int, *, lease: float) -> Renewal | None:
    """Extend the lease to *lease* seconds from now; None: it ran out, the worker is lost."""
    rows = fetch(cursor, "renew_lease", {"id": worker_id, "lease": lease})
    return Renewal._make(rows[0]) if rows else None


def send_orders(cursor: Cursor, worker_id: int) -> None:
    """Send the question what people ask of a worker: whether to be quiet, and whether more."""
    execute(cursor, "find_orders", {"id": worker_id})


def cut_leases(cursor: Cursor, worker_id: int) -> None:
    """Cut the leases of other workers that end later than they can."""
    execute(cursor, "cut_leases", {"id": worker_id})


def end_worker(cursor: Cursor, worker_id: int) -> None:
    """Say goodbye for a worker that holds no job any more."""
    execute(cursor, "end_worker", {"id": worker_id})


def end_lost_workers(cursor: Cursor) -> list[tuple[int, str]]:
    """Close the rows of workers whose lease ran out; return their ids and names."""
    return fetch(cursor, "end_lost_workers", {})


def set_listening(cursor: Cursor, worker_id: int, *, listening: bool) -> None:
    """Send whether the worker wants to be notified of new jobs; no row: its own is locked."""
    execute(cursor, "set_listening", {"id": worker_id, "listening": listening})


def prune_workers(cursor: Cursor, *, retention: float) -> int:
    """Delete the rows of workers that ended *retention* seconds ago or before; return how many."""
    execute(cursor, "prune_workers", {"retention": retention})
    return cursor.rowcount
