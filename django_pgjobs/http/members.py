"""The worker of a request: what it may have, and what its row says."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from django_pgjobs.backend import our_aliases
from django_pgjobs.http.access import Access
from django_pgjobs.http.assignments import Assignment
from django_pgjobs.http.options import make_options
from django_pgjobs.http.pool import turn
from django_pgjobs.http.problems import Problem
from django_pgjobs.queries.remote import RemoteWorkerRow, send_worker
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.state import Options

KNOWN_SECONDS = 1.0
MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class RemoteWorker:
    """A worker over HTTP that claims, and what it may have."""

    id: int
    token_id: int
    name: str
    queues: tuple[str, ...]
    paths: frozenset[str]
    # What the parts of the engine are told of it.
    options: Options

    def id_of(self, attempt: Attempt) -> str:
        """Return the id of the assignment of an attempt."""
        return Assignment(attempt.id, attempt.claim, self.id, self.token_id).sealed


class Member(NamedTuple):
    """A live worker over HTTP: as it claims, and what its row says."""

    worker: RemoteWorker
    row: RemoteWorkerRow


def worker_gone() -> Problem:
    """Return the problem of a worker that is not the token's, or whose lease is over."""
    detail = "Register anew; what the worker ran is lost to it."
    return Problem("worker-gone", detail=detail)


def find_member(access: Access, worker_id: int) -> Member:
    """Return the worker of a token; raise Problem (404) if it is gone, or none of it."""
    [rows] = turn([lambda cursor: send_worker(cursor, worker_id, token_id=access.token_id)])
    if not rows:
        raise worker_gone()
    row = RemoteWorkerRow._make(rows[0])
    # The token may have been narrowed since.
    served = sorted(access.queues_of(row.queues))
    worker = RemoteWorker(
        id=worker_id,
        token_id=access.token_id,
        name=row.name,
        queues=tuple(served),
        paths=access.tasks_of(row.task_paths),
        options=make_options(served, [alias for alias in our_aliases() if alias in row.backends]),
    )
    return Member(worker, row)


class RecentMembers:
    """The workers that asked lately, as they were up to a second ago.

    The claim itself looks whether the lease holds.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[Access, Member, float]] = {}

    def get(self, access: Access, worker_id: int) -> Member:
        """Return a worker; raise Problem (404) if it is gone."""
        now = time.monotonic()
        found = self._found.get(worker_id)
        if found is not None and found[0] == access and now < found[2]:
            return found[1]
        member = find_member(access, worker_id)
        if len(self._found) >= MOST_KNOWN:
            self._found = {}
        self._found[worker_id] = access, member, now + KNOWN_SECONDS
        return member

    def forget(self, worker_id: int | None = None) -> None:
        """Ask the table for this worker again; without one, for each."""
        if worker_id is None:
            self._found = {}
        else:
            self._found.pop(worker_id, None)


recent_members = RecentMembers()
