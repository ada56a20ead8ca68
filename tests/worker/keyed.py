"""Claims of jobs with keys by hand."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from django_pgjobs.choosing import Rooms
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import HEAD, ClaimedRow, Group, Lane, ReadyPlace, Segment, Taker
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.keyed_claim import KeyedClaim
from tests.factories import make_jobs

# Where jobs with keys are, if the test does not say.
KEYED = Group("default", "default", 0)


def make_keyed(count: int, key: str, limit: int | None = None, **columns: Any) -> list[int]:
    """Insert jobs of one concurrency key."""
    return make_jobs(count, concurrency_key=key, concurrency_limit=limit, **columns)


def keyed_claim(
    connection: OwnConnection,
    worker_id: int,
    max_jobs: int = 10,
    *,
    passed_over_paths: Iterable[str] = (),
    caps: dict[str, int] | None = None,
    segments: list[Segment] | None = None,
    lanes: list[Lane] | None = None,
    takes_tokens: bool = True,
    waits: bool = False,
    rooms: tuple[int, int] | None = None,
) -> list[ClaimedRow]:
    """List where jobs are and claim jobs of all kinds there, as a worker does in its turn."""
    [listed] = connection.round_trip([claims.send_lane_listing])
    places = [ReadyPlace._make(row) for row in listed]
    boosts = {place.queue_name: place.boost for place in places}
    groups = [
        Group(p.backend, p.queue_name, p.urgency, p.is_async)
        for p in places
        if p.urgency is not None
    ]
    groups.sort(key=lambda group: group.urgency - boosts[group.queue_name])
    if segments is None:
        segments = [Segment(group) for group in groups]
    if lanes is None:
        lanes = [Lane(p.backend, p.queue_name, p.is_async) for p in places if p.urgency is None]
    taker = Taker(
        worker_id=worker_id,
        worker_name="test:1",
        passed_over_paths=list(passed_over_paths),
        detailed=False,
        detailed_paths=[],
        takes_tokens=takes_tokens,
    )

    scope = claims.Scope(
        floors=dict.fromkeys(lanes, HEAD),
        segments=segments,
        boosts=boosts,
        slots=caps or {},
        rooms=Rooms(*(rooms or (max_jobs, max_jobs))),
        max_jobs=max_jobs,
    )
    if not waits:
        # Django's flush empties the table of the row that is held; the first try makes it again.
        connection.round_trip([claims.send_hold])
    hold = partial(claims.send_hold, waits=waits)
    statements = KeyedClaim(scope, taker).statements
    rows = connection.round_trip([hold, *statements.sends])
    return claims.claimed_rows(rows[1 + len(statements.before)], 0.0)
