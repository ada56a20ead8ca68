"""Ageing: what is below is served now and then, whatever is above it."""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest import mock

import pytest

from django_pgjobs.choosing import Rooms
from django_pgjobs.queries.claims import HEAD, Floor, Group, Lane, ReadyPlace, Segment
from django_pgjobs.worker.claiming.plan import Claim
from tests.factories import count_jobs, make_jobs
from tests.helpers import wait_until
from tests.worker.planning import Knowing, keyed, plain
from tests.worker.support import DEFAULT, ThreadedWorker, row_of_job

SLEEP = "tests.tasks.sleep_for"


def floors_of(knowing: Knowing) -> dict[Lane, Floor]:
    """Return where the next claim reads each lane from."""
    plan = knowing.plan()
    return plan.floors if plan else {}


@pytest.mark.django_db(transaction=True)
def test_with_ageing_a_low_queue_is_served_beside_one_that_is_never_empty(
    start_thread: Callable[..., ThreadedWorker],
) -> None:
    make_jobs(3_000, SLEEP, queue_name="high", priority=10, args=[0.05])
    make_jobs(1, SLEEP, queue_name="low", priority=-5, args=[0.05])
    start_thread(concurrency=2, ageing=0.2)
    wait_until(lambda: count_jobs(queue_name="low", status="successful") == 1, timeout=20)


def test_with_ageing_one_claim_in_a_while_begins_at_the_lowest_priority() -> None:
    """S5.14: what is below is not starved."""
    low, high = Group("default", "default", 7), Group("default", "default", -5)
    found = [*plain(DEFAULT, lowest=9), *keyed(low, high)]
    knowing = Knowing(*found, ageing=60.0)
    assert floors_of(knowing) == {DEFAULT: HEAD}
    plan = knowing.places.plan(
        Rooms(50, 50), time.monotonic() + 61, wanted=100, free=Rooms(1, 1), caps={}
    )
    assert plan
    assert (plan.floors, plan.segments) == ({DEFAULT: Floor(9, 0)}, [Segment(low)])
    assert plan.rooms == Rooms(1, 1), "the one slot that is free"
    knowing.places.note_claimed(Claim(plan, [row_of_job(4, priority=-9)], held=True))
    assert floors_of(knowing) == {DEFAULT: HEAD}


def test_a_claim_of_the_lowest_that_waited_for_a_lock_in_vain_has_had_its_turn() -> None:
    knowing = Knowing(*plain(DEFAULT), ageing=60.0)
    plan = knowing.places.plan(
        Rooms(1, 1), time.monotonic() + 61, wanted=1, free=Rooms(1, 1), caps={}
    )
    assert plan
    assert plan.lifts
    with mock.patch("time.monotonic", return_value=time.monotonic() + 61):
        knowing.places.note_locked(plan)
        again = knowing.plan()
    assert again
    assert not again.lifts


def test_a_claim_without_room_for_the_lowest_has_not_had_its_turn() -> None:
    """Threads are full, the event loop is free, and all places are of threads."""
    knowing = Knowing(*plain(DEFAULT, lowest=9), ageing=60.0)
    soon = time.monotonic() + 61
    full = knowing.places.plan(Rooms(0, 100), soon, wanted=100, free=Rooms(0, 100), caps={})
    assert full is None
    plan = knowing.places.plan(Rooms(1, 100), soon, wanted=100, free=Rooms(1, 100), caps={})
    assert plan
    assert plan.lifts


def test_a_queue_whose_jobs_are_the_best_of_all_is_not_lifted() -> None:
    """It would win each of these claims. Of the others each has its turn, not the next lower."""
    places = [
        ReadyPlace("default", name, None, False, lowest, 0, False, first, 1)
        for name, first, lowest in (("high", -9, -9), ("middle", 0, 0), ("low", 5, 5))
    ]
    knowing = Knowing(*places, ageing=60.0)
    soon = time.monotonic() + 61
    lifted = set()
    for _ in range(100):
        plan = knowing.places.plan(Rooms(1, 1), soon, wanted=1, free=Rooms(1, 1), caps={})
        assert plan
        [(lane, floor)] = plan.floors.items()
        lifted.add((lane.queue_name, floor.urgency))
    assert lifted == {("middle", 0), ("low", 5)}


def test_where_no_look_has_told_the_lowest_priority_no_claim_begins_there() -> None:
    knowing = Knowing(ageing=60.0)
    knowing.places.note_queue("default")
    plan = knowing.places.plan(
        Rooms(1, 1), time.monotonic() + 61, wanted=1, free=Rooms(1, 1), caps={}
    )
    assert plan
    assert (plan.lifts, set(plan.floors.values())) == (False, {HEAD})


def test_without_ageing_every_claim_begins_at_the_top() -> None:
    knowing = Knowing(*plain(DEFAULT))
    plan = knowing.places.plan(
        Rooms(1, 1), time.monotonic() + 3600, wanted=1, free=Rooms(1, 1), caps={}
    )
    assert plan
    assert not plan.lifts
