"""Which worker asks, and what it may have."""

from __future__ import annotations

from typing import NamedTuple

from django_pgjobs.http.access import Access
from django_pgjobs.http.pool import turn
from django_pgjobs.http.problems import Problem
from django_pgjobs.http.station import our_backends
from django_pgjobs.http.taking import Taker
from django_pgjobs.queries.remote import RemoteWorker, send_worker


class Member(NamedTuple):
    """A live worker over HTTP: as it claims, and what its row says."""

    taker: Taker
    row: RemoteWorker


def worker_gone() -> Problem:
    """Return the problem of a worker that is not the token's, or whose lease is over."""
    detail = "Register anew; what the worker ran is lost to it."
    return Problem(404, "worker-gone", "There is no such worker", detail=detail)


def find_member(access: Access, worker_id: int) -> Member:
    """Return the worker of a token; raise Problem (404) if it is gone, or none of it."""
    [rows] = turn([lambda cursor: send_worker(cursor, worker_id, token_id=access.token_id)])
    if not rows:
        raise worker_gone()
    row = RemoteWorker._make(rows[0])
    queues, paths = set(row.queues), frozenset(row.task_paths)
    taker = Taker(
        worker_id=worker_id,
        token_id=access.token_id,
        name=row.name,
        # The token may have been narrowed since.
        queues=tuple(sorted(queues if access.queues is None else queues & access.queues)),
        paths=paths if access.tasks is None else paths & access.tasks,
        backends=tuple(alias for alias in our_backends() if alias in row.backends),
    )
    return Member(taker, row)
