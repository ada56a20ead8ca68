"""The claimer: how many jobs to claim, from which lanes, and from where in each."""

from __future__ import annotations

import time
from typing import Any

import pytest

from django_pgjobs.queries.claims import HEAD, Floor, Group, Lane, Ready, Segment
from django_pgjobs.worker.claimer import MAX_PREFETCH, PREFETCH_SECONDS, Claimer
from tests.worker.keyed import KEYED
from tests.worker.planning import Make, claimed, keyed, plain
from tests.worker.support import DEFAULT, make_attempt_of, row_of_job

MAIL = Lane("default", "mail")


def floors(claimer: Claimer, *, from_heads: bool) -> dict[Lane, Floor]:
    """Return where the next claim reads each lane from."""
    return claimer.plan(1, from_heads=from_heads).floors


@pytest.mark.parametrize(("running", "wanted"), [(0, 4), (1, 3), (4, 0)])
def test_a_new_worker_claims_what_its_free_slots_take(
    make: Make, running: int, wanted: int
) -> None:
    """S1.10 (b), S2.7: jobs are taken only when there is capacity."""
    claiming = make()
    claiming.run(running)
    assert claiming.claimer.wanted() == wanted


def test_short_jobs_are_claimed_ahead_as_many_as_soon_run(make: Make) -> None:
    claiming = make()
    claiming.slots.mean_duration = 0.001
    prefetch = int(4 * PREFETCH_SECONDS / 0.001)
    assert claiming.claimer.prefetch == prefetch
    assert claiming.claimer.wanted() == 4 + prefetch


def test_long_jobs_are_not_claimed_ahead(make: Make) -> None:
    claiming = make()
    claiming.slots.mean_duration = 5.0
    assert claiming.claimer.wanted() == 4


def test_what_is_claimed_ahead_is_bounded(make: Make) -> None:
    """S4.13."""
    claiming = make()
    claiming.slots.mean_duration = 0.0
    assert claiming.claimer.prefetch == MAX_PREFETCH


def test_nothing_is_claimed_ahead_while_every_slot_runs_a_long_job(make: Make) -> None:
    """However short the jobs before were."""
    claiming = make()
    claiming.slots.mean_duration = 0.0001
    claiming.run(4, seconds_ago=1.0)
    assert claiming.claimer.wanted() == 0
    claiming.slots.running.pop()
    claiming.run(1)
    assert claiming.claimer.prefetch > 0


def test_a_buffer_that_is_full_enough_stops_the_claims(make: Make) -> None:
    claiming = make()
    claiming.slots.mean_duration = 0.01
    assert claiming.claimer.prefetch == 20
    claiming.buffer(11)
    assert claiming.claimer.wanted() == 0
    claiming.slots.buffer.pop()
    assert claiming.claimer.wanted() == 4 + 20 - 10
    assert claiming.claimer.wanted(waits=True) == 4 + 20, "by then they have run"


def test_nothing_is_claimed_while_async_jobs_wait_for_the_event_loop(make: Make) -> None:
    claiming = make()
    claiming.async_slots.buffer.append(make_attempt_of(1))
    assert claiming.claimer.wanted() == 0


def test_a_worker_that_stops_claims_nothing(make: Make) -> None:
    """S4.15."""
    claiming = make()
    claiming.state.stopping = True
    assert claiming.claimer.wanted() == 0


def test_max_jobs_counts_finished_and_held_jobs(make: Make) -> None:
    claiming = make(max_jobs=10)
    claiming.slots.mean_duration = 0.001
    assert claiming.claimer.wanted() == 10
    claiming.state.finished_jobs = 6
    claiming.state.held = {1: make_attempt_of(1)}
    assert claiming.claimer.wanted() == 3
    claiming.state.finished_jobs = 10
    assert claiming.claimer.wanted() == 0


@pytest.mark.parametrize(
    ("options", "served"),
    [
        ({}, [DEFAULT, MAIL]),
        ({"queues": ("mail",)}, [MAIL]),
        ({"excluded_queues": ("mail",)}, [DEFAULT]),
        ({"backends": ("default", "other")}, [DEFAULT, MAIL, Lane("other", "default")]),
        ({"queues": ("mail", "default"), "excluded_queues": ("mail",)}, [DEFAULT]),
    ],
)
def test_only_lanes_that_the_worker_serves_are_read(
    make: Make, options: dict[str, Any], served: list[Lane]
) -> None:
    """S1.19: types can be pinned to servers by queue."""
    claiming = make(**options)
    claiming.claimer.note_lanes(plain(DEFAULT, MAIL, Lane("other", "default")))
    assert list(floors(claiming.claimer, from_heads=True)) == sorted(served)


def test_a_notification_adds_the_lanes_of_a_served_queue_only(make: Make) -> None:
    claiming = make(backends=("a", "b"), queues=("mail",))
    claiming.claimer.note_queue("default")
    assert not claiming.claimer.has_lanes
    claiming.claimer.note_queue("mail")
    assert list(floors(claiming.claimer, from_heads=False)) == [
        Lane("a", "mail"),
        Lane("b", "mail"),
    ]


def test_the_next_batch_is_read_from_where_the_last_one_ended(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(plain(DEFAULT, MAIL))
    rows = [row_of_job(5, priority=9), row_of_job(3), row_of_job(7)]
    claimed(claimer, rows, wanted=3, from_heads=True)
    assert floors(claimer, from_heads=False) == {DEFAULT: Floor(0, 7), MAIL: HEAD}
    assert floors(claimer, from_heads=True) == {DEFAULT: HEAD, MAIL: HEAD}


def test_after_a_short_batch_the_heads_are_read_at_once(make: Make) -> None:
    """What appeared below a floor, a higher priority or a retry, is found."""
    claimer = make().claimer
    claimer.note_lanes(plain(DEFAULT))
    claimer.note_scan(0.0)
    claimed(claimer, [row_of_job(7)], wanted=1, from_heads=False)
    assert not claimer.head_scan_is_due()
    claimed(claimer, [], wanted=1, from_heads=False)
    assert claimer.head_scan_is_due()


def test_a_full_batch_below_the_floor_lowers_it(make: Make) -> None:
    """There may be more where it ended."""
    claimer = make().claimer
    claimer.note_lanes(plain(DEFAULT))
    claimed(claimer, [row_of_job(70)], wanted=1, from_heads=False)
    claimed(claimer, [row_of_job(7)], wanted=1, from_heads=True)
    assert floors(claimer, from_heads=False) == {DEFAULT: Floor(0, 7)}


def test_a_short_batch_below_the_floor_does_not_lower_it(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(plain(DEFAULT))
    claimed(claimer, [row_of_job(70)], wanted=1, from_heads=False)
    claimed(claimer, [row_of_job(7)], wanted=2, from_heads=True)
    assert floors(claimer, from_heads=False) == {DEFAULT: Floor(0, 70)}


def test_the_heads_are_read_again_after_a_while_however_full_the_batches_are(make: Make) -> None:
    claimer = make().claimer
    assert claimer.head_scan_is_due()
    claimer.note_scan(0.0)
    assert not claimer.head_scan_is_due()
    claimer.request_head_scan()
    assert claimer.head_scan_is_due()


def test_scans_that_have_become_slow_are_made_rarely(make: Make) -> None:
    """A held snapshot makes them wade through every job that ran since."""
    claimer = make().claimer
    claimer.note_scan(100.0)
    claimer.request_head_scan()
    assert not claimer.head_scan_is_due()
    assert claimer.scan_allowed_at > time.monotonic() + 800


def test_jobs_with_keys_are_walked_after_a_scan_found_some(make: Make) -> None:
    claimer = make().claimer
    assert not claimer.plan(1, from_heads=True).is_keyed
    claimer.note_lanes(keyed(KEYED))
    plan = claimer.plan(1, from_heads=False)
    assert (plan.is_keyed, plan.holds, plan.segments) == (True, True, [Segment(KEYED)])


def test_a_walk_in_vain_is_not_repeated_before_something_changes(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(keyed(KEYED))
    claimed(claimer, [], wanted=5, from_heads=False)
    assert not claimer.plan(1, from_heads=False).is_keyed
    claimer.note_freed([row_of_job(1, lane="a")])
    assert claimer.plan(1, from_heads=False).is_keyed


def test_between_walks_only_the_lanes_whose_jobs_ended_are_looked_at(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(keyed(KEYED))
    claimed(claimer, [row_of_job(1, lane="a")], wanted=5, from_heads=False, seconds=9.0)
    claimer.note_freed([row_of_job(1, lane="a"), row_of_job(2, lane=None)])
    claimer.note_scan(0.0)
    plan = claimer.plan(1, from_heads=False)
    assert plan.segments == [Segment.single(KEYED, "a")]
    claimed(claimer, [], wanted=1, from_heads=False)
    claimer.note_scan(0.0)
    assert claimer.plan(1, from_heads=False).segments == []
    assert claimer.look_allowed_at > time.monotonic() + 30
    assert not claimer.plan(1, from_heads=True).segments[0].is_single


def test_a_walk_that_another_worker_prevented_is_still_due(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(keyed(KEYED))
    claimed(claimer, [], wanted=5, from_heads=False, held=False)
    assert claimer.plan(1, from_heads=False).is_keyed


def test_the_next_walk_goes_on_behind_the_lane_that_was_served_last(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(keyed(KEYED))
    claimed(claimer, [row_of_job(1, lane="a"), row_of_job(2, lane="b")], wanted=2, from_heads=False)
    assert claimer.plan(1, from_heads=False).segments == [
        Segment.behind(KEYED, "b"),
        Segment(KEYED, "", "b"),
    ]
    claimed(claimer, [row_of_job(3, lane="c"), row_of_job(4, lane="a")], wanted=2, from_heads=False)
    assert claimer.plan(1, from_heads=False).segments[0] == Segment.behind(KEYED, "a")


def test_a_walk_that_claimed_less_than_it_wanted_does_not_start_over(make: Make) -> None:
    """It may have left out lanes, which would starve while those before them have jobs."""
    claimer = make().claimer
    claimer.note_lanes(keyed(KEYED))
    claimed(claimer, [row_of_job(1, lane="a")], wanted=2, from_heads=False)
    assert claimer.plan(1, from_heads=False).segments == [
        Segment.behind(KEYED, "a"),
        Segment(KEYED, "", "a"),
    ]


def test_higher_priorities_are_walked_first_and_a_boost_counts(make: Make) -> None:
    low, high = KEYED, Group("default", "default", -5)
    boosted = Group("default", "mail", 0)
    claimer = make().claimer
    claimer.note_lanes([*keyed(low, high), *keyed(boosted, boost=7)])
    segments = claimer.plan(1, from_heads=True).segments
    assert [segment.group for segment in segments] == [boosted, high, low]


def test_a_limited_queue_is_claimed_only_in_turn_with_other_workers(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes([Ready("default", "default", None, 0, 0, True)])
    plan = claimer.plan(1, from_heads=False)
    assert (plan.is_keyed, plan.holds, plan.segments) == (True, True, [])


def test_the_slots_of_a_queue_are_what_its_held_jobs_leave(make: Make) -> None:
    claiming = make(queue_slots={"mail": 2, "slow": 1})
    attempts = [make_attempt_of(number, queue_name="mail") for number in (1, 2)]
    claiming.state.held = {1: attempts[0]}
    claiming.claimer.note_lanes(plain(MAIL))
    plan = claiming.claimer.plan(4, from_heads=False)
    assert (plan.caps, plan.holds) == ({"mail": 1, "slow": 1}, False)
    claiming.state.held = {1: attempts[0], 2: attempts[1]}
    assert claiming.claimer.plan(4, from_heads=False).caps["mail"] == 0


def test_with_ageing_one_claim_in_a_while_begins_at_the_lowest_priority(make: Make) -> None:
    """S5.14: what is below is not starved."""
    claiming = make(ageing=60.0, concurrency=4)
    claiming.run(3)
    claiming.slots.mean_duration = 0.001
    claimer = claiming.claimer
    low, high = Group("default", "default", 7), Group("default", "default", -5)
    claimer.note_lanes([Ready("default", "default", None, 9, 0, False), *keyed(low, high)])
    assert claimer.plan(50, from_heads=False).floors == {DEFAULT: HEAD}
    claimer._lift_due = 0.0
    plan = claimer.plan(50, from_heads=False)
    assert (plan.floors, plan.segments) == ({DEFAULT: Floor(9, 0)}, [Segment(low)])
    assert plan.wanted == 1, "the one slot that is free"
    claimer.note_claimed([row_of_job(4, priority=-9)], plan, held=True, seconds=0.0)
    assert claimer.plan(50, from_heads=False).floors == {DEFAULT: HEAD}


def test_without_ageing_every_claim_begins_at_the_top(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(plain(DEFAULT))
    claimer._lift_due = 0.0
    assert not claimer.plan(1, from_heads=False).lifts


def test_a_notified_queue_counts_as_one_without_keys_until_a_claim_finds_none(make: Make) -> None:
    """Else workers ask for the turn to claim keys again and again instead of waiting for it."""
    claimer = make().claimer
    claimer.note_lanes([Ready("default", "default", 0, 0, 0, False)])
    assert claimer.has_only_keys
    claimer.note_queue("default")
    assert not claimer.has_only_keys
    claimed(claimer, [], wanted=4, from_heads=False, held=False)
    assert claimer.has_only_keys
    claimed(claimer, [row_of_job(1)], wanted=4, from_heads=False, held=False)
    assert not claimer.has_only_keys
