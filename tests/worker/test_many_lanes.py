"""share_lanes.sql: the best jobs of very many queues, without reading all of each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import product

import psycopg
import pytest
from django.db import connection

from django_pgjobs import pause
from django_pgjobs.choosing import Rooms
from django_pgjobs.models import QueueSettings
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import HEAD, Floor, Lane, Scope, Taker
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.plan import FEW_LANES, Claim
from django_pgjobs.worker.claiming.shared_claim import SharedClaim
from tests.factories import count_jobs, get_job, make_job, make_jobs, make_worker
from tests.helpers import some_always, wait_until
from tests.worker.planning import Knowing, plain
from tests.worker.support import NEVER, ThreadedWorker, ids, row_of_job

QUEUES = 3 * FEW_LANES
LANES = [Lane("default", f"queue-{n}", kind) for n in range(QUEUES) for kind in (False, True)]
INSERT = """
INSERT INTO pgjobs_job (queue_name, is_async, priority, task_path)
SELECT given.*, 'tests.tasks.add' FROM unnest(%s::text[], %s::boolean[], %s::integer[]) AS given
RETURNING id
"""
Job = tuple[str, bool, int]
on_server = pytest.mark.django_db(transaction=True)


class Sharing:
    """Claims of many lanes by hand, which learn of each other as a worker's do."""

    def __init__(self, own: OwnConnection, shares: Counter[Lane] | None = None) -> None:
        self._own = own
        self._shares = Counter() if shares is None else shares
        self._worker = make_worker()
        self.floors = dict.fromkeys(LANES, HEAD)

    def claim(self, *rooms: int, most: int = 10_000) -> list[int]:
        """Claim so many of each kind; return their ids."""
        taker = Taker(
            worker_id=self._worker, worker_name="test:1", passed_over_paths=[], detailed=False,
            detailed_paths=[],
        )  # fmt: skip
        scope = Scope(
            floors=self.floors, segments=[], boosts={}, slots={}, rooms=Rooms(*rooms), max_jobs=most
        )
        heads: dict[Lane, Floor | None] = {}
        [question], take, _ = SharedClaim(scope, taker, heads, self._shares).statements
        rows = claims.claimed_rows(self._own.round_trip([question, take])[-1], 0.0)
        ends = {
            Lane(row.backend, row.queue_name, row.is_async): Floor(-row.priority, row.id)
            for row in rows
        }
        for lane, floor in [*heads.items(), *ends.items()]:
            if floor is None:
                del self.floors[lane]
            else:
                self.floors[lane] = floor
        return ids(rows)


def insert(jobs: list[Job]) -> list[tuple[int, bool]]:
    """Insert jobs in this order; return id and kind in the order in which they are claimed."""
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [list(column) for column in zip(*jobs, strict=True)])
        inserted = sorted(row[0] for row in cursor.fetchall())
    ranked = sorted((-job[2], number, job[1]) for number, job in zip(inserted, jobs, strict=True))
    return [(number, is_async) for _, number, is_async in ranked]


def in_turns(depth: int) -> list[Job]:
    return [(lane.queue_name, lane.is_async, 0) for _ in range(depth) for lane in LANES]


def one_by_one(depth: int) -> list[Job]:
    return [(lane.queue_name, lane.is_async, 0) for lane in LANES for _ in range(depth)]


def at_random(seed: int) -> list[Job]:
    dice = random.Random(seed)
    return [
        (
            f"queue-{min(int(dice.expovariate(0.2)), QUEUES - 1)}",
            dice.choice([True, False]),
            dice.choice([0, 0, 0, 5, -5]),
        )
        for _ in range(400)
    ]


JOBS = {
    "in turns": in_turns(8),
    "one by one": one_by_one(8),
    "one each": one_by_one(1),
    **{f"at random {seed}": at_random(seed) for seed in range(4)},
}


@on_server
@pytest.mark.parametrize(
    ("jobs", "rooms"),
    some_always(product(JOBS, [(1, 1), (7, 0), (3, 60), (100, 40)]), every=5),
)
def test_the_best_jobs_of_many_queues_are_claimed_in_order(
    own: OwnConnection, jobs: str, rooms: tuple[int, int]
) -> None:
    """In this order, whichever queues they are in and however many are asked for."""
    ordered = insert(JOBS[jobs])
    of_kind = {kind: [number for number, of in ordered if of == kind] for kind in (False, True)}
    sharing = Sharing(own)
    for _ in range(4):
        expected = of_kind[False][: rooms[0]] + of_kind[True][: rooms[1]]
        assert sorted(sharing.claim(*rooms)) == sorted(expected)
        of_kind = {kind: of_kind[kind][rooms[kind] :] for kind in (False, True)}
    assert sorted(sharing.claim(1000, 1000)) == sorted(of_kind[False] + of_kind[True])


@on_server
def test_a_limit_for_both_kinds_takes_the_best_of_both(own: OwnConnection) -> None:
    ordered = [number for number, _ in insert(at_random(5))]
    sharing = Sharing(own)
    claimed = sharing.claim(50, 50, most=20)
    assert claimed == ordered[:20]
    assert sharing.claim(50, 50, most=20) == ordered[20:40]


@on_server
def test_lanes_that_are_empty_are_told_and_no_others(own: OwnConnection) -> None:
    insert(one_by_one(2)[:20])
    sharing = Sharing(own)
    assert len(sharing.claim(10_000, 10_000)) == 20
    assert len(sharing.floors) == 10, "of the others nothing was found"
    assert sharing.claim(1, 1) == []
    assert sharing.floors == {}


@on_server
def test_a_row_that_somebody_holds_is_passed_over_in_many_queues_too(own: OwnConnection) -> None:
    ordered = [number for number, is_async in insert(one_by_one(3)) if not is_async]
    sharing = Sharing(own)
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", [ordered[0]])
        claimed = sharing.claim(2, 0)
        cursor.execute("ROLLBACK")
    assert claimed == ordered[1:3]
    assert get_job(ordered[0]).status == "ready"


@on_server
@pytest.mark.parametrize(
    "close",
    [
        lambda name: pause(queue=name),
        lambda name: QueueSettings.objects.create(queue_name=name, max_running=1),
    ],
    ids=["paused", "limited"],
)
def test_a_queue_that_gives_nothing_takes_no_share(
    own: OwnConnection, close: Callable[[str], object]
) -> None:
    close("queue-0")
    insert(one_by_one(3))
    claimed = Sharing(own).claim(4, 0)
    assert {get_job(job).queue_name for job in claimed} == {"queue-1", "queue-2"}
    assert len(claimed) == 4


@on_server
def test_a_worker_runs_the_jobs_of_very_many_queues(
    drain: Callable[..., ThreadedWorker],
) -> None:
    for number in range(60):
        make_jobs(3, queue_name=f"queue-{number}")
    drain(concurrency=2)
    assert count_jobs(status="successful") == 180


@on_server
def test_a_claim_tells_what_it_was_to_take_of_each_lane(own: OwnConnection) -> None:
    insert(one_by_one(3))
    shares: Counter[Lane] = Counter()
    sharing = Sharing(own, shares)
    assert len(sharing.claim(4, 0)) == 4
    assert shares == {LANES[0]: 3, LANES[2]: 1}


def test_the_worker_learns_of_lanes_that_others_have_emptied() -> None:
    """So many jobs were to come of them that the others were not read."""
    emptied, served, unread = (Lane("default", name) for name in ("a", "b", "c"))
    knowing = Knowing(*plain(emptied, served, unread))
    plan = knowing.plan(3)
    assert plan
    knowing.places.note_claimed(
        Claim(plan, [row_of_job(1, queue_name="b")], missed=Counter({emptied: 2}))
    )
    again = knowing.plan(3)
    assert again
    assert again.floors == {served: Floor(0, 1), unread: HEAD}
    knowing.places.note_claimed(
        Claim(again, [row_of_job(2, queue_name="b")], missed=Counter({unread: 1}))
    )
    again = knowing.plan(3)
    assert again
    assert again.floors == {served: HEAD}, "all were read, but this one from its floor on"


def test_the_worker_learns_where_lanes_begin_and_which_are_empty() -> None:
    """Though it was full."""
    empty, later, served, unread = (Lane("default", name) for name in ("a", "b", "c", "d"))
    knowing = Knowing(*plain(empty, later, served, unread))
    plan = knowing.plan(1)
    assert plan
    knowing.places.note_claimed(
        Claim(plan, [row_of_job(1, queue_name="c")], heads={empty: None, later: Floor(0, 5)})
    )
    again = knowing.plan(1)
    assert again
    assert again.floors == {later: Floor(0, 5), served: Floor(0, 1), unread: HEAD}
    knowing.places.note_claimed(
        Claim(again, [row_of_job(5, queue_name="b")], heads={served: None, unread: Floor(0, 7)})
    )
    again = knowing.plan(1)
    assert again
    assert again.floors == {later: Floor(0, 5), served: HEAD, unread: Floor(0, 7)}, (
        "behind its floor there is nothing, but before it may be something"
    )


@on_server
def test_a_locked_job_does_not_keep_others_from_their_turn(
    start_thread: Callable[..., ThreadedWorker], open_connection: Callable[..., psycopg.Connection]
) -> None:
    """What a claim is to take is found without locks; with one slot that is the locked job."""
    [first, second] = (make_job(queue_name=name) for name in ("first", "second"))
    other = open_connection(autocommit=False)
    other.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [first])
    start_thread(concurrency=1, poll_interval=NEVER)
    wait_until(lambda: get_job(second).status == "successful")
    other.rollback()
