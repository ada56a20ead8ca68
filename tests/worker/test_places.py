"""The places: what the next claim reads, and what is learnt of its answer."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pytest

from django_pgjobs.choosing import Rooms
from django_pgjobs.queries.claims import HEAD, Floor, Group, Lane, ReadyPlace, Segment
from django_pgjobs.worker.claiming.lanes import KnownLane
from django_pgjobs.worker.claiming.pace import MOST_SECONDS
from django_pgjobs.worker.claiming.plan import Claim, Listing
from tests.worker.keyed import KEYED
from tests.worker.planning import Knowing, keyed, plain
from tests.worker.support import DEFAULT, row_of_job

MAIL = Lane("default", "mail")
ONE = Rooms(1, 1)


def slow_knowing(*found: ReadyPlace) -> Knowing:
    """Return what a worker knows that finds these places when its claims have become slow."""
    knowing = Knowing(*found)
    knowing.claim(wanted=1, seconds=100.0)
    knowing.find(*found)
    return knowing


def floors(knowing: Knowing) -> dict[Lane, Floor]:
    """Return where the next claim reads each lane from."""
    plan = knowing.plan()
    return plan.floors if plan else {}


def segments(knowing: Knowing, **given: Any) -> list[Segment]:
    """Return which lanes with keys the next claim reads."""
    plan = knowing.plan(**given)
    return plan.segments if plan else []


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
    options: dict[str, Any], served: list[Lane]
) -> None:
    """S1.19: types can be pinned to servers by queue."""
    knowing = Knowing(*plain(DEFAULT, MAIL, Lane("other", "default")), **options)
    assert sorted(floors(knowing)) == sorted(served)


def test_a_notification_adds_the_lanes_of_a_served_queue_only() -> None:
    knowing = Knowing(backends=("a", "b"), queues=("mail",))
    knowing.places.note_queue("default")
    assert knowing.places.is_empty
    knowing.places.note_queue("mail")
    kinds = (False, True)
    lanes = [Lane(name, "mail", kind) for name in "ab" for kind in kinds]
    assert sorted(floors(knowing)) == lanes


def test_the_next_batch_is_read_from_where_the_last_one_ended() -> None:
    knowing = Knowing(*plain(DEFAULT, MAIL))
    knowing.claim(row_of_job(5, priority=9), row_of_job(3), row_of_job(7), wanted=3)
    assert floors(knowing) == {DEFAULT: Floor(0, 7), MAIL: HEAD}


def test_an_offer_lets_the_next_claim_read_from_the_head() -> None:
    """What appeared before the floor, a higher priority or a retry, is found."""
    knowing = Knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(7), wanted=1)
    assert floors(knowing) == {DEFAULT: Floor(0, 7)}
    knowing.find(*plain(DEFAULT))
    assert floors(knowing) == {DEFAULT: HEAD}


def test_after_a_short_batch_from_the_floor_the_head_is_read_at_once() -> None:
    knowing = Knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(7), wanted=1)
    knowing.claim(wanted=1)
    assert floors(knowing) == {DEFAULT: HEAD}


def test_a_lane_is_forgotten_after_a_short_batch_from_its_head_only() -> None:
    knowing = Knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(7), wanted=1)
    knowing.claim(wanted=1)
    assert not knowing.places.is_empty
    knowing.claim(wanted=1)
    assert knowing.places.is_empty
    assert knowing.plan() is None
    assert knowing.places.claim_at(time.monotonic(), ONE) == math.inf


def test_a_lane_is_known_all_the_time_while_a_claim_is_learnt_from() -> None:
    """The upkeep asks at any moment whether the pump knows of a place."""
    knowing = Knowing(*plain(DEFAULT))
    places = knowing.places
    seen: list[bool] = []

    class Watched(dict[Lane, KnownLane]):
        def __setitem__(self, lane: Lane, known: KnownLane) -> None:
            super().__setitem__(lane, known)
            seen.append(places.is_empty)

        def __delitem__(self, lane: Lane) -> None:
            super().__delitem__(lane)
            seen.append(places.is_empty)

    lanes = places._lanes
    lanes._known = Watched(lanes._known)
    knowing.claim(row_of_job(7), wanted=1)
    knowing.claim(wanted=1)
    assert len(seen) >= 2
    assert not any(seen)


def test_a_lane_whose_turn_did_not_come_in_a_full_batch_is_read_from_its_head_again() -> None:
    """Others had better jobs; what it has before its floor has not been looked at."""
    knowing = Knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(70), wanted=1)
    knowing.find(*plain(DEFAULT, MAIL))
    knowing.claim(row_of_job(3, queue_name="mail", priority=9), wanted=1)
    assert floors(knowing) == {DEFAULT: HEAD, MAIL: Floor(-9, 3)}


def test_an_offer_that_comes_while_a_claim_is_under_way_is_not_lost() -> None:
    """The queue takes offers over between two turns, so the answer cannot forget a new one."""
    knowing = Knowing(*plain(DEFAULT))
    knowing.claim(wanted=1)
    knowing.places.note_queue("default")
    assert floors(knowing)[DEFAULT] == HEAD


def test_a_full_batch_below_the_floor_lowers_it() -> None:
    """There may be more where it ended."""
    knowing = Knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(70), wanted=1)
    knowing.find(*plain(DEFAULT))
    knowing.claim(row_of_job(7), wanted=1)
    assert floors(knowing) == {DEFAULT: Floor(0, 7)}


def test_a_short_batch_below_the_floor_does_not_lower_it() -> None:
    knowing = slow_knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(70), wanted=1)
    knowing.find(*plain(DEFAULT))
    knowing.claim(row_of_job(7), wanted=2, seconds=100.0)
    knowing.find(*plain(DEFAULT))
    assert floors(knowing) == {DEFAULT: Floor(0, 70)}


def test_claims_from_heads_that_have_become_slow_are_made_rarely() -> None:
    """A held snapshot makes them wade through every job that ran since."""
    knowing = slow_knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(7), wanted=1, seconds=100.0)
    knowing.claim(wanted=1)
    assert knowing.plan() is None, "nothing is left behind the floor"
    wait = knowing.places.claim_at(time.monotonic(), ONE) - time.monotonic()
    assert MOST_SECONDS - 1 < wait <= MOST_SECONDS
    knowing.places.note_queue("default")
    assert floors(knowing)[DEFAULT] == Floor(0, 7)


@pytest.mark.parametrize("found", [plain(DEFAULT), keyed(KEYED)], ids=["heads", "walk"])
def test_a_single_claim_that_was_slow_holds_up_no_other(found: list[Any]) -> None:
    """Its process was stopped, or the server stood still."""
    knowing = Knowing(*found)
    knowing.claim(wanted=1, seconds=3600.0)
    knowing.find(*found)
    assert knowing.plan()


def test_a_walk_that_was_fast_is_followed_by_others_whatever_was_before() -> None:
    """The server stood still twice; the fast one was planned before the pause for that."""
    knowing = slow_knowing(*keyed(KEYED))
    plan = knowing.claim(wanted=1, seconds=50.0)
    knowing.places.note_claimed(Claim(plan, held=True, seconds=0.0))
    knowing.find(*keyed(KEYED))
    assert knowing.plan()


def test_the_floor_of_a_lane_without_jobs_is_forgotten_with_the_next_look() -> None:
    """Queues come and go: a worker must not keep all it ever met."""
    knowing = slow_knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(7), wanted=2)
    knowing.find(*plain(MAIL))
    knowing.claim(wanted=1, seconds=100.0)
    knowing.places.note_queue("default")
    assert floors(knowing)[DEFAULT] == HEAD


def test_a_floor_is_kept_while_claims_from_heads_are_slow() -> None:
    """Else each look would let a lane be read from its head again."""
    knowing = slow_knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(7), wanted=2, seconds=100.0)
    knowing.find(*plain(MAIL))
    knowing.places.note_queue("default")
    assert floors(knowing)[DEFAULT] == Floor(0, 7)


def test_a_job_that_was_given_back_is_before_the_floor() -> None:
    knowing = Knowing(*plain(DEFAULT))
    knowing.claim(row_of_job(7), wanted=1)
    knowing.places.note_returned([row_of_job(7)])
    assert floors(knowing) == {DEFAULT: HEAD}


def test_jobs_with_keys_are_walked_after_a_look_found_some() -> None:
    knowing = Knowing()
    assert knowing.plan() is None
    knowing.find(*keyed(KEYED))
    plan = knowing.plan()
    assert plan
    assert (plan.is_keyed, plan.holds, plan.segments) == (True, True, [Segment(KEYED)])


def test_a_walk_in_vain_is_not_repeated_before_something_changes() -> None:
    knowing = Knowing(*keyed(KEYED))
    knowing.claim(wanted=5)
    assert knowing.places.is_empty
    knowing.places.note_ended([row_of_job(1, lane="a")])
    assert segments(knowing)


def test_a_key_that_becomes_free_with_the_turn_is_looked_at_in_it() -> None:
    knowing = Knowing()
    assert segments(knowing, ending=[row_of_job(1, lane="a")]) == [Segment(KEYED)]
    assert knowing.places.is_empty, "the plan has changed nothing"


def test_between_walks_only_the_lanes_whose_jobs_ended_are_looked_at() -> None:
    knowing = slow_knowing(*keyed(KEYED))
    knowing.claim(row_of_job(1, lane="a"), wanted=5, seconds=9.0)
    knowing.places.note_ended([row_of_job(1, lane="a"), row_of_job(2, lane=None)])
    plan = knowing.claim(wanted=1)
    assert plan.segments == [Segment.single(KEYED, "a")]
    assert segments(knowing) == []
    assert knowing.places.claim_at(time.monotonic(), ONE) > time.monotonic() + MOST_SECONDS / 2


def test_a_walk_that_fills_most_of_its_batch_is_repeated_soon() -> None:
    """Its time was not spent in vain: half of a batch, half of the pause."""
    for claimed, pause in ((1, 2.0), (2, 0.0)):
        knowing, began = slow_knowing(*keyed(KEYED)), time.monotonic()
        rows = [row_of_job(n, lane="a") for n in range(claimed)]
        knowing.claim(*rows, wanted=2, seconds=1.0)
        due = knowing.places.claim_at(time.monotonic(), ONE)
        assert began <= due - pause <= time.monotonic()


def test_a_slow_walk_in_vain_is_not_repeated_soon_after_two_that_were_of_use() -> None:
    """They were as slow, though no time was lost with them."""
    knowing = Knowing(*keyed(KEYED))
    for _ in range(2):
        knowing.claim(row_of_job(1, lane="a"), wanted=1, seconds=1.0)
    knowing.claim(wanted=1, seconds=1.0)
    knowing.find(*keyed(KEYED))
    assert knowing.places.claim_at(time.monotonic(), ONE) > time.monotonic() + 3


def test_a_walk_that_another_worker_prevented_is_still_due_and_waits() -> None:
    """If nothing is known that needs no turn."""
    knowing = Knowing(*keyed(KEYED))
    assert not knowing.claim(wanted=5, held=False).waits
    plan = knowing.claim(wanted=5)
    assert (plan.waits, plan.segments) == (True, [Segment(KEYED)])
    assert not knowing.places.waits(time.monotonic(), ONE)


def test_a_worker_whose_turn_it_is_not_goes_on_with_jobs_without_keys() -> None:
    knowing = Knowing(*keyed(KEYED), *plain(DEFAULT))
    knowing.claim(row_of_job(1), wanted=1, held=False)
    plan = knowing.plan()
    assert plan
    assert (plan.waits, plan.segments, plan.floors) == (False, [], {DEFAULT: Floor(0, 1)})
    knowing.claim(wanted=1, held=False)
    knowing.claim(wanted=1, held=False)
    assert knowing.places.waits(time.monotonic(), ONE), "jobs with keys are all that is left"


def test_a_claim_that_waited_for_a_lock_in_vain_is_made_without_what_was_locked() -> None:
    knowing = Knowing(*keyed(KEYED))
    plan = knowing.plan()
    assert plan
    assert plan.takes_tokens
    knowing.places.note_locked(plan)
    again = knowing.plan()
    assert again
    assert not again.takes_tokens
    assert not knowing.places.waits(time.monotonic(), ONE)


def test_the_next_walk_goes_on_behind_the_lane_that_was_served_last() -> None:
    knowing = Knowing(*keyed(KEYED))
    knowing.claim(row_of_job(1, lane="a"), row_of_job(2, lane="b"), wanted=2)
    assert segments(knowing) == [Segment.behind(KEYED, "b"), Segment(KEYED, "", "b")]
    knowing.claim(row_of_job(3, lane="c"), row_of_job(4, lane="a"), wanted=2)
    assert segments(knowing)[0] == Segment.behind(KEYED, "a")


def test_a_walk_that_claimed_less_than_it_wanted_does_not_start_over() -> None:
    """It may have left out lanes, which would starve while those before them have jobs."""
    knowing = Knowing(*keyed(KEYED))
    knowing.claim(row_of_job(1, lane="a"), wanted=2)
    assert segments(knowing) == [Segment.behind(KEYED, "a"), Segment(KEYED, "", "a")]


def test_higher_priorities_are_walked_first_and_a_boost_counts() -> None:
    low, high = KEYED, Group("default", "default", -5)
    boosted = Group("default", "mail", 0)
    knowing = Knowing(*keyed(low, high), *keyed(boosted, boost=7))
    assert [segment.group for segment in segments(knowing)] == [boosted, high, low]


def test_a_limited_queue_is_claimed_only_in_turn_with_other_workers() -> None:
    knowing = Knowing(*plain(DEFAULT, is_limited=True))
    plan = knowing.claim(wanted=1, held=False)
    assert (plan.is_keyed, plan.holds, plan.segments) == (True, True, [])
    assert not knowing.places.is_empty, "nobody has looked whether it has jobs"
    knowing.claim(wanted=1)
    assert knowing.places.is_empty
    knowing.places.note_ended([row_of_job(1)])
    assert floors(knowing)[DEFAULT] == HEAD, "a place in the queue is free"


def test_a_place_in_a_queue_with_slots_of_its_own_lets_its_jobs_start() -> None:
    knowing = Knowing(*plain(MAIL), queue_slots={"mail": 1})
    plan = knowing.claim(wanted=1)
    assert not plan.holds
    knowing.places.note_ended([row_of_job(1, queue_name="mail")])
    assert floors(knowing)[MAIL] == HEAD


def test_groups_are_walked_again_when_the_tokens_are_there_without_another_look() -> None:
    """The round trip of a look would be lost for each token."""
    knowing = Knowing()
    listing = Listing.of(keyed(KEYED), knowing.options)
    knowing.places.note_listing(replace(listing, tokens_at=50.0))
    knowing.claim(wanted=1)
    assert knowing.places.is_empty
    knowing.places.note_time(49.9)
    assert knowing.places.is_empty
    knowing.places.note_time(50.0)
    assert not knowing.places.is_empty
    assert knowing.places.tokens_at == math.inf


def test_a_lane_is_read_from_where_the_look_found_its_first_job() -> None:
    """Not from its head, where dead entries may be in the index."""
    found = plain(DEFAULT, first_urgency=0, first_id=70)
    knowing = Knowing(*found)
    plan = knowing.claim(row_of_job(70), wanted=1)
    assert (plan.floors, plan.heads) == ({DEFAULT: Floor(0, 70)}, {DEFAULT})
    assert floors(knowing) == {DEFAULT: Floor(0, 70)}
    knowing.claim(wanted=1)
    assert floors(knowing) == {DEFAULT: HEAD}, "a short batch lets it be read whole"


@pytest.mark.parametrize("tell", ["note_queue", "note_returned"])
def test_a_lane_that_may_have_got_earlier_jobs_since_the_look_is_read_from_its_head(
    tell: str,
) -> None:
    found = plain(DEFAULT, first_urgency=0, first_id=70)
    knowing = Knowing(*found)
    getattr(knowing.places, tell)("default" if tell == "note_queue" else [row_of_job(5)])
    assert floors(knowing)[DEFAULT] == HEAD
    knowing.find(*found)
    assert floors(knowing)[DEFAULT] == HEAD, "it may have got them after that look"
    knowing.claim(row_of_job(5), wanted=1)
    knowing.find(*found)
    assert floors(knowing)[DEFAULT] == Floor(0, 70)
