"""claim_lanes.sql: the best jobs of several queues, without reading all of each."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import product

import psycopg
import pytest
from django.db import connection

from django_pgjobs import pause
from django_pgjobs.choosing import Rooms
from django_pgjobs.models import QueueSettings
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import (
    FEW_JOBS,
    HEAD,
    TAIL,
    ClaimedRow,
    Floor,
    Lane,
    Taker,
)
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claiming.plan import FEW_LANES, Claim, Plan
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
READ = """
SELECT pg_stat_get_tuples_returned(indexrelid)
FROM pg_index WHERE indexrelid::regclass::text LIKE '%pgjobs_job_ready'
"""
Job = tuple[str, bool, int]
on_server = pytest.mark.django_db(transaction=True)


class Claiming:
    """Claims of many lanes by hand, which learn of each other as a worker's do."""

    def __init__(self, own: OwnConnection, *, jobs_per_lane: float = 1.0) -> None:
        self._own = own
        self._jobs_per_lane = jobs_per_lane
        self._taker = Taker(
            worker_id=make_worker(), worker_name="test:1", passed_over_paths=[], detailed=False,
            detailed_paths=[],
        )  # fmt: skip
        self.floors = dict.fromkeys(LANES, HEAD)

    def claim(self, *rooms: int, most: int = 10_000) -> list[int]:
        """Claim so many of each kind, or the best of what is known to be best; return their ids."""
        plan = Plan(
            rooms=Rooms(*rooms), wanted=most, floors=self.floors, segments=[], boosts={}, caps={},
            limited=frozenset(),
        ).of_nearest(self._jobs_per_lane)  # fmt: skip
        take = partial(
            claims.send_claim, floors=plan.floors, rooms=plan.rooms, max_jobs=most,
            taker=self._taker, ends=plan.ends,
        )  # fmt: skip
        [rows] = self._own.round_trip([take])
        _, going_on = claims.shares_of(rows, plan.floors)
        if going_on is not None:
            for lane in plan.floors.keys() - going_on.keys():
                del self.floors[lane]
            self.floors |= going_on
        return ids(claims.claimed_rows(rows, 0.0))


def insert(jobs: list[Job]) -> list[tuple[int, bool]]:
    """Insert jobs in this order; return id and kind in the order in which they are claimed."""
    with connection.cursor() as cursor:
        cursor.execute(INSERT, [list(column) for column in zip(*jobs, strict=True)])
        inserted = sorted(row[0] for row in cursor.fetchall())
    ranked = sorted((-job[2], number, job[1]) for number, job in zip(inserted, jobs, strict=True))
    return [(number, is_async) for _, number, is_async in ranked]


def entries_read(own: OwnConnection) -> int:
    """Return how many entries of the index of ready jobs have been read by now."""
    with own.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(READ)
        [(read,)] = cursor.fetchall()
    return int(read)


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
    left = {kind: [number for number, of in ordered if of == kind] for kind in (False, True)}
    # Some do not give as many, so a claim reads too few lanes.
    claiming = Claiming(own, jobs_per_lane=6)
    for room in [rooms] * 4 + [(1000, 1000)] * 20:
        claimed = set(claiming.claim(*room))
        for kind, jobs_left in left.items():
            found = [number for number in jobs_left if number in claimed]
            assert found == jobs_left[: len(found)], "others are better"
            assert len(found) >= min(room[kind], len(jobs_left), FEW_JOBS)
            assert len(found) <= room[kind]
            del jobs_left[: len(found)]
    assert left == {False: [], True: []}


@on_server
def test_queues_that_are_deep_are_not_all_read_deep(own: OwnConnection) -> None:
    """Whether their jobs came one queue after the other or in turns."""
    for jobs in (one_by_one(60), in_turns(60)):
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE pgjobs_job")
        insert(jobs)
        claiming = Claiming(own)
        claiming.claim(1, 1)
        before = entries_read(own)
        assert len(claiming.claim(60, 0)) >= 30
        assert entries_read(own) - before < 10 * 60


@on_server
def test_a_limit_for_both_kinds_takes_the_best_of_both(own: OwnConnection) -> None:
    ordered = [number for number, _ in insert(at_random(5))]
    claiming = Claiming(own)
    claimed = claiming.claim(50, 50, most=20)
    assert len(claimed) > FEW_JOBS
    assert claimed == ordered[: len(claimed)]
    again = claiming.claim(50, 50, most=20)
    assert again == ordered[len(claimed) :][: len(again)]


@on_server
def test_what_may_be_worse_waits_for_the_best_of_the_other_kind(own: OwnConnection) -> None:
    """If both want the same places, and of the better kind not all is known."""
    second, other = LANES[2], LANES[1]
    better = insert([(second.queue_name, second.is_async, 0)] * 10)
    insert([(other.queue_name, other.is_async, 0)] * 10)
    claimed = Claiming(own).claim(8, 8, most=8)
    assert claimed == [number for number, _ in better[: len(claimed)]]
    assert len(claimed) > FEW_JOBS


@on_server
def test_lanes_that_have_more_are_told_and_no_others(own: OwnConnection) -> None:
    insert(one_by_one(2)[:20])
    claiming = Claiming(own)
    assert len(claiming.claim(1, 0)) == 1
    assert len(claiming.floors) == 10, "in the others nothing was found"
    assert len(claiming.claim(10_000, 10_000)) == 19
    assert claiming.floors == {}


@on_server
def test_a_row_that_somebody_holds_is_passed_over_in_many_queues_too(own: OwnConnection) -> None:
    ordered = [number for number, is_async in insert(one_by_one(3)) if not is_async]
    claiming = Claiming(own)
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT FROM pgjobs_job_live WHERE id = %s FOR UPDATE", [ordered[0]])
        claimed = claiming.claim(2, 0)
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
    claimed = Claiming(own).claim(4, 0)
    assert {get_job(job).queue_name for job in claimed} == {"queue-1", "queue-2"}
    assert len(claimed) == 4


@pytest.mark.slow
@on_server
def test_a_worker_runs_the_jobs_of_very_many_queues(
    drain: Callable[..., ThreadedWorker],
) -> None:
    for number in range(60):
        make_jobs(3, queue_name=f"queue-{number}")
    drain(concurrency=2)
    assert count_jobs(status="successful") == 180


def test_the_worker_learns_where_lanes_go_on_and_which_have_no_more() -> None:
    """Whether the batch was full or not."""
    empty, later, served, last = (Lane("default", name) for name in ("a", "b", "c", "d"))
    knowing = Knowing(*plain(empty, later, served, last))
    goes_on = {later: Floor(0, 5), served: Floor(0, 2), last: Floor(0, 7)}
    learn(knowing, [row_of_job(1, queue_name="c")], goes_on)
    assert floors(knowing) == goes_on
    learn(knowing, [row_of_job(5, queue_name="b")], {last: Floor(0, 7)})
    assert floors(knowing) == {later: HEAD, served: HEAD, last: Floor(0, 7)}, (
        "behind its floor there is nothing, but before it may be something"
    )


def learn(knowing: Knowing, rows: list[ClaimedRow], going_on: dict[Lane, Floor]) -> None:
    """Let the next claim, of two jobs, come back with these and tell where lanes go on."""
    plan = knowing.plan(2)
    assert plan
    knowing.places.note_claimed(Claim(plan, rows, floors=going_on))


def floors(knowing: Knowing) -> dict[Lane, Floor]:
    plan = knowing.plan(2)
    return plan.floors if plan else {}


def test_a_claim_reads_the_lanes_that_begin_first() -> None:
    """And no further than to where the next one begins."""
    lanes = {Lane("default", f"queue-{n}"): Floor(-n % 2, n) for n in range(4 * FEW_LANES)}
    first = sorted(lanes, key=lanes.__getitem__)
    plan = planned(lanes, 1)
    assert list(plan.floors) == first[:FEW_LANES]
    assert plan.ends == (lanes[first[FEW_LANES]], TAIL)
    assert len(planned(lanes, 6 * FEW_LANES, jobs_per_lane=2.0).floors) == 3 * FEW_LANES
    assert planned(lanes, 1000).ends == (TAIL, TAIL)


def test_a_lane_that_may_begin_anywhere_is_read_behind_the_first() -> None:
    lanes = {Lane("default", f"queue-{n}"): HEAD for n in range(2 * FEW_LANES)}
    known = Lane("default", "known")
    plan = planned({**lanes, known: Floor(0, 1)}, 1)
    assert list(plan.floors) == [known, *lanes]
    assert plan.ends == (TAIL, TAIL)


def test_a_claim_reads_as_many_lanes_as_the_last_one_says_it_needs() -> None:
    """One lane for each job, until a claim has told how many jobs a lane gives."""
    lanes = [Lane("default", f"queue-{n:02}") for n in range(4 * FEW_LANES)]
    knowing = Knowing(*plain(*lanes, first_urgency=0, first_id=1))
    plan = knowing.plan(2 * FEW_LANES)
    assert plan
    assert len(plan.floors) == 2 * FEW_LANES
    goes_on = {lane: Floor(0, 100) for lane in plan.floors}
    rows = [row_of_job(n, queue_name=lanes[n // 2].queue_name) for n in range(2 * FEW_LANES)]
    knowing.places.note_claimed(Claim(plan, rows, floors=goes_on))
    again = knowing.plan(3 * FEW_LANES)
    assert again
    assert len(again.floors) == 3 * FEW_LANES / 2


def planned(lanes: dict[Lane, Floor], wanted: int, *, jobs_per_lane: float = 1.0) -> Plan:
    """Return a claim of so many jobs for threads that knows where these lanes go on."""
    plan = Plan(
        rooms=Rooms(wanted, 0), wanted=wanted, floors=lanes, segments=[], boosts={}, caps={},
        limited=frozenset(),
    )  # fmt: skip
    return plan.of_nearest(jobs_per_lane)


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
