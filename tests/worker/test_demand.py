"""The demand: how many jobs a worker claims."""

from __future__ import annotations

import pytest

from django_pgjobs.choosing import Rooms
from django_pgjobs.worker.claiming.pump import HOARD_SECONDS
from django_pgjobs.worker.running.capacity import (
    FAR_SECONDS,
    MAX_PREFETCH,
    MAX_SECONDS,
    MOST_PREFETCH,
    PREFETCH_SECONDS,
)
from tests.worker.planning import Make
from tests.worker.support import make_attempt_of


@pytest.mark.parametrize(("running", "wanted"), [(0, 4), (1, 3), (4, 0)])
def test_a_new_worker_claims_what_its_free_slots_take(
    make: Make, running: int, wanted: int
) -> None:
    """S1.10 (b), S2.7: jobs are taken only when there is capacity."""
    claiming = make()
    claiming.run(running)
    assert claiming.demand.rooms().threads == wanted


def test_short_jobs_are_claimed_ahead_as_many_as_soon_run(make: Make) -> None:
    claiming = make()
    claiming.slots.mean_duration = 0.001
    prefetch = int(4 * PREFETCH_SECONDS / 0.001)
    assert claiming.slots.prefetch == prefetch
    assert claiming.demand.rooms().threads == 4 + prefetch


def test_long_jobs_are_not_claimed_ahead(make: Make) -> None:
    claiming = make()
    claiming.slots.mean_duration = 5.0
    assert claiming.demand.rooms().threads == 4


@pytest.mark.parametrize(("usual", "odd"), [(0.001, 0.1), (0.00005, 0.02)])
def test_one_job_that_takes_hundreds_of_times_as_long_hardly_counts(
    make: Make, usual: float, odd: float
) -> None:
    """A processor that was taken away for a moment does not make the next claim small."""
    slots = make().slots
    for _ in range(10_000):
        slots.note_duration(usual)
    slots.note_duration(odd)
    assert slots.mean_duration
    assert usual < slots.mean_duration < 2 * usual
    for _ in range(40):
        slots.note_duration(0.1)
    assert slots.mean_duration == pytest.approx(0.1, rel=0.01), "but all of them do"


def test_a_job_that_takes_long_counts_at_once(make: Make) -> None:
    slots = make().slots
    slots.note_duration(0.001)
    slots.note_duration(5.0)
    assert slots.mean_duration == 5.0
    slots.note_duration(0.001)
    assert slots.mean_duration == pytest.approx(2.5, rel=0.01)


def test_what_is_claimed_ahead_is_bounded(make: Make) -> None:
    """S4.13."""
    claiming = make()
    claiming.slots.mean_duration = 0.0
    assert claiming.slots.prefetch == MAX_PREFETCH


def test_the_limit_of_a_claim_is_a_setting(make: Make) -> None:
    """S4.13: the fetch limit, of one claim and of what waits for slots."""
    claiming = make(concurrency=10, claim_limit=20)
    assert claiming.demand.rooms().threads == 10, "slots that are free, and no more than these"
    claiming.slots.mean_duration = 0.001
    assert claiming.slots.prefetch == 20
    assert claiming.demand.rooms().threads == 20
    claiming.run(10)
    assert claiming.demand.rooms().threads == 20
    claiming.buffer(11)
    assert claiming.demand.rooms().threads == 0, "more than half of them are still there"
    assert make(concurrency=10, claim_limit=3).demand.rooms().threads == 3


def test_nothing_is_claimed_ahead_while_every_slot_runs_a_long_job(make: Make) -> None:
    """However short the jobs before were."""
    claiming = make()
    claiming.slots.mean_duration = 0.0001
    claiming.run(4, seconds_ago=1.0)
    assert claiming.demand.rooms().threads == 0
    claiming.slots.running.pop()
    claiming.run(1)
    assert claiming.slots.prefetch > 0


def test_a_buffer_that_is_full_enough_stops_the_claims(make: Make) -> None:
    claiming = make()
    claiming.slots.mean_duration = 0.01
    assert claiming.slots.prefetch == 20
    claiming.buffer(11)
    assert claiming.demand.rooms().threads == 0
    claiming.slots.buffer.pop()
    assert claiming.demand.rooms().threads == 4 + 20 - 10
    assert claiming.demand.rooms(waits=True).threads == 4 + 20, "by then they have run"


def test_threads_and_event_loop_have_room_of_their_own(make: Make) -> None:
    claiming = make(async_concurrency=9)
    assert claiming.demand.rooms() == Rooms(4, 9)
    claiming.run(4)
    assert claiming.demand.rooms() == Rooms(0, 9)
    claiming.async_slots.running |= {make_attempt_of(number) for number in range(20, 29)}
    assert claiming.demand.rooms() == Rooms(0, 0)
    claiming.slots.running.clear()
    assert claiming.demand.rooms() == Rooms(4, 0)


def test_a_job_whose_row_is_wrong_takes_up_room_of_both_kinds_while_it_waits(make: Make) -> None:
    claiming = make(async_concurrency=9)
    claiming.async_slots.running |= {make_attempt_of(number) for number in range(20, 29)}
    claiming.async_slots.buffer.append(make_attempt_of(1))
    claiming.demand.measure(0.0)
    assert claiming.demand.rooms() == Rooms(0, 0), "it was claimed for a thread"
    claiming.async_slots.buffer.clear()
    claiming.async_slots.buffer.append(make_attempt_of(1, is_async=True))
    claiming.demand.measure(0.0)
    assert claiming.demand.rooms() == Rooms(4, 0)


def test_a_claim_is_bounded_however_many_slots_are_free(make: Make) -> None:
    """The loop begins one job after the other; those it has not begun soon would go back."""
    claiming = make(async_concurrency=100_000)
    assert claiming.demand.rooms().loop == MAX_PREFETCH
    claiming.async_slots.mean_duration = 0.001
    claiming.async_slots.buffer.extend(make_attempt_of(1, is_async=True) for _ in range(400))
    assert claiming.demand.rooms().loop == MAX_PREFETCH
    claiming.demand.measure(FAR_SECONDS)
    assert claiming.demand.rooms().loop == 2 * MAX_PREFETCH


def test_a_limit_of_jobs_is_for_both_kinds_together(make: Make) -> None:
    claiming = make(max_jobs=10, async_concurrency=9)
    assert claiming.demand.in_all(claiming.demand.rooms()) == 10
    claiming.state.finished_jobs = 7
    rooms = claiming.demand.rooms()
    assert (rooms, claiming.demand.in_all(rooms)) == (Rooms(3, 3), 3), "of any kind"


def test_the_farther_the_server_is_the_more_is_claimed_ahead(make: Make) -> None:
    claiming = make()
    claiming.slots.mean_duration = 0.0
    claiming.demand.measure(2 * FAR_SECONDS)
    assert claiming.slots.prefetch == 3 * MAX_PREFETCH
    assert claiming.slots.low_water == 3 * MAX_PREFETCH - MAX_PREFETCH // 2
    claiming.demand.measure(10.0)
    assert claiming.slots.prefetch == MOST_PREFETCH


def test_no_more_is_claimed_ahead_than_soon_runs_however_far_the_server_is(make: Make) -> None:
    claiming = make()
    claiming.slots.mean_duration = 0.01
    claiming.demand.measure(0.02)
    assert claiming.slots.prefetch == int(4 * (PREFETCH_SECONDS + 0.04) / 0.01)
    claiming.demand.measure(10.0)
    assert claiming.slots.prefetch == int(4 * MAX_SECONDS / 0.01)
    assert MAX_SECONDS < HOARD_SECONDS, "or it would go back before it begins"


def test_a_worker_that_stops_claims_nothing(make: Make) -> None:
    """S4.15."""
    claiming = make()
    claiming.state.stopping = True
    assert claiming.demand.rooms().threads == 0


def test_max_jobs_counts_finished_and_held_jobs(make: Make) -> None:
    claiming = make(max_jobs=10)
    claiming.slots.mean_duration = 0.001
    assert claiming.demand.rooms().threads == 10
    claiming.state.finished_jobs = 6
    claiming.state.held = {1: make_attempt_of(1)}
    assert claiming.demand.rooms().threads == 3
    claiming.state.finished_jobs = 10
    assert claiming.demand.rooms().threads == 0


def test_the_slots_of_a_queue_are_what_its_held_jobs_leave(make: Make) -> None:
    claiming = make(queue_slots={"mail": 2, "slow": 1})
    attempts = [make_attempt_of(number, queue_name="mail") for number in (1, 2)]
    claiming.state.held = {1: attempts[0]}
    assert claiming.demand.caps() == {"mail": 1, "slow": 1}
    claiming.state.held = {1: attempts[0], 2: attempts[1]}
    assert claiming.demand.caps()["mail"] == 0
