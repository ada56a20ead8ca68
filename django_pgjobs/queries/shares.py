"""Statements of a claim of many lanes without keys: how many jobs each gives, and taking them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django_pgjobs.queries.arrays import array_text
from django_pgjobs.queries.claims import (
    NOTHING_CHOSEN,
    Floor,
    Lane,
    Scope,
    Taker,
    floors_params,
)
from django_pgjobs.queries.cursor import Cursor, execute


class Share(NamedTuple):
    """How many jobs a lane is to give to a claim, and where they begin; None: it has none."""

    lane: Lane
    head: Floor | None
    jobs: int


def send_shares(cursor: Cursor, scope: Scope, taker: Taker) -> None:
    """Send the question how many jobs each of many lanes without keys is to give."""
    lanes = Counter(lane.is_async for lane in scope.floors)
    few_jobs = [max(1, 2 * room // max(1, lanes[bool(k)])) for k, room in enumerate(scope.rooms)]
    params = taker.params() | floors_params(scope.floors)
    params |= {
        "lane_jobs": array_text(scope.rooms[lane.is_async] for lane in scope.floors),
        "rooms": array_text(scope.rooms),
        "few_jobs": array_text(few_jobs),
        "max_jobs": scope.max_jobs,
        "counted": False,
    }
    execute(cursor, "share_lanes", params)


def shares_of(rows: Iterable[Any]) -> list[Share]:
    """Return what share_lanes.sql tells."""
    return [
        Share(
            Lane(backend, queue_name, is_async),
            None if first_id is None else Floor(urgency, first_id),
            jobs,
        )
        for backend, queue_name, is_async, urgency, first_id, jobs in rows
    ]


def send_shared_claim(cursor: Cursor, shares: Sequence[Share], scope: Scope, taker: Taker) -> None:
    """Send the claim of these shares."""
    floors = {share.lane: share.head for share in shares if share.head and share.jobs}
    params = taker.params() | floors_params(floors)
    params |= {
        "lane_jobs": array_text(share.jobs for share in shares if share.jobs),
        "rooms": array_text(scope.rooms),
        "max_jobs": scope.max_jobs,
        "shared": True,
    }
    execute(cursor, "claim_jobs", params | NOTHING_CHOSEN)
