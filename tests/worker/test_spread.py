"""How much of each lane a walk takes, and what follows where that was too little."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import ClaimedRow, Depth, Group, Ready, Segment
from django_pgjobs.worker.claimer import Claimer
from django_pgjobs.worker.turn import Turn
from tests.factories import count_jobs
from tests.helpers import wait_until
from tests.worker.keyed import KEYED, make_keyed
from tests.worker.planning import Make, Planning, claimed, keyed
from tests.worker.support import NEVER, ThreadedWorker, row_of_job

Start = Callable[..., ThreadedWorker]
FEW = {"has_rate_limits": False, "gives_heads": True}
PLAIN = Ready("default", "mail", None, 0, 0, False, **FEW)


def alone(*groups: Group, **columns: Any) -> list[Ready]:
    """Return what a scan lists of jobs with keys where no rate limit exists."""
    return keyed(*groups, **(FEW | columns))


def rows_of(*lanes: str) -> list[ClaimedRow]:
    """Return claimed rows of these lanes."""
    return [row_of_job(number, lane=lane) for number, lane in enumerate(lanes, 1)]


def spread(claimer: Claimer, *lanes: str) -> None:
    """Let a walk come back with a full batch."""
    claimed(claimer, rows_of(*lanes), wanted=len(lanes), from_heads=False)


def make_spread(make: Make, *lanes: str, **options: Any) -> Claimer:
    """Return a claimer that knows one group, of which these lanes filled the last batch."""
    claimer = make(**options).claimer
    claimer.note_lanes(alone(KEYED))
    spread(claimer, *lanes)
    return claimer


PAIRS = [f"lane {number // 2}" for number in range(100)]


def test_first_jobs_that_fill_a_batch_will_fill_the_next(make: Make) -> None:
    claimer = make().claimer
    claimer.note_lanes(alone(KEYED))
    assert claimer.plan(3, from_heads=False).depth is Depth.SHARE
    spread(claimer, "a", "b", "c")
    assert claimer.plan(3, from_heads=False).depth is Depth.HEAD
    assert claimer.plan(3, from_heads=True).depth is Depth.SHARE
    spread(claimer, "d", "e", "f")
    plan = claimer.plan(3, from_heads=False)
    assert (plan.segments[0], plan.depth) == (Segment.behind(KEYED, "f"), Depth.HEAD)


def test_only_walks_tell_how_the_jobs_are_spread(make: Make) -> None:
    """Neither a look at freed lanes, nor one that was not in its turn."""
    claimer = make_spread(make, "a", "b", "c")
    claimed(claimer, [], wanted=3, from_heads=False, held=False, seconds=NEVER)
    assert claimer.plan(3, from_heads=False).depth is Depth.HEAD
    claimer.note_freed(rows_of("a"))
    claimer._walk_allowed_at = time.monotonic() + NEVER
    claimed(claimer, rows_of("a"), wanted=3, from_heads=False)
    claimer._walk_allowed_at = 0.0
    assert claimer.plan(3, from_heads=False).depth is Depth.HEAD
    claimed(claimer, rows_of("a", "a"), wanted=3, from_heads=True)
    assert claimer._walk_allowed_at < time.monotonic() + NEVER / 2


def test_few_lanes_are_to_give_more_than_their_first_jobs(make: Make) -> None:
    claimer = make_spread(make, "a", "a", "b")
    assert claimer.plan(3, from_heads=False).depth is Depth.SHARE


def test_a_large_batch_has_more_than_one_job_of_a_lane(make: Make) -> None:
    claimer = make_spread(make, *PAIRS)
    assert claimer.plan(100, from_heads=False).depth is Depth.FIRSTS


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(alone(KEYED, Group("default", "mail", 0)), id="two queues"),
        pytest.param(alone(KEYED, Group("default", "default", 5)), id="two priorities"),
        pytest.param(alone(KEYED, is_limited=True), id="a limited queue"),
        pytest.param(alone(KEYED, has_rate_limits=True), id="a rate limit"),
        pytest.param([*alone(KEYED), PLAIN], id="jobs without keys"),
    ],
)
def test_all_else_has_to_be_weighed(make: Make, found: list[Ready]) -> None:
    claimer = make_spread(make, "a", "b", "c")
    claimer.note_lanes(found)
    assert claimer.plan(3, from_heads=False).depth is Depth.SHARE


def test_a_lane_may_have_to_give_another_job_than_its_first(make: Make) -> None:
    """Or one that begins with a paused task would wait as long as others fill the batches."""
    claiming = make()
    claimer = claiming.claimer
    claimer.note_lanes(alone(KEYED, gives_heads=False))
    spread(claimer, "a", "b", "c")
    assert claimer.plan(3, from_heads=False).depth is Depth.FIRSTS
    claimer.note_lanes(alone(KEYED))
    assert claimer.plan(3, from_heads=False).depth is Depth.HEAD
    claiming.state.unknown_paths["shop.tasks.new"] = time.monotonic() + NEVER
    assert claimer.plan(3, from_heads=False).depth is Depth.FIRSTS


def test_slots_of_a_queue_have_to_be_counted(make: Make) -> None:
    claimer = make_spread(make, "a", "b", "c", queue_slots={"default": 9})
    assert claimer.plan(3, from_heads=False).depth is Depth.SHARE


def test_a_claim_of_the_lowest_priorities_is_to_take_all_it_may(make: Make) -> None:
    claimer = make_spread(make, "a", "b", "c", ageing=NEVER)
    claimer._lift_due = 0.0
    plan = claimer.plan(3, from_heads=False)
    assert (plan.lifts, plan.walks, plan.depth) == (True, True, Depth.SHARE)


def test_a_freed_lane_is_to_give_all_it_may(make: Make) -> None:
    claimer = make_spread(make, "a", "b", "c")
    claimer.note_freed(rows_of("a"))
    claimer._walk_allowed_at = time.monotonic() + NEVER
    plan = claimer.plan(3, from_heads=False)
    assert (plan.segments, plan.depth) == ([Segment.single(KEYED, "a")], Depth.SHARE)


def test_a_batch_that_stays_short_is_followed_by_a_whole_claim(make: Make) -> None:
    claimer = make_spread(make, "a", "b", "c")
    claimed(claimer, rows_of("d"), wanted=3, from_heads=False, seconds=9.0)
    plan = claimer.plan(3, from_heads=False)
    assert (plan.walks, plan.depth) == (True, Depth.SHARE)
    assert claimer.look_allowed_at == 0.0
    assert not claimer.settled


def test_lanes_that_give_less_than_they_are_asked_for_have_no_more(make: Make) -> None:
    """Keys that run one job at a time, say: the next walk waits, as after a whole claim."""
    claimer = make_spread(make, *PAIRS)
    few = rows_of(*(f"lane {number}" for number in range(60)))
    claimed(claimer, few, wanted=100, from_heads=False, seconds=9.0)
    claimer.note_scan(0.0)
    assert claimer.look_allowed_at > time.monotonic() + 30
    assert claimer.plan(100, from_heads=True).depth is Depth.SHARE


def test_the_time_of_a_walk_that_fell_short_counts(make: Make) -> None:
    """Walks take a fifth of the time at most, those that are followed by others included."""
    claimer = make_spread(make, "a", "b", "c")
    claimed(claimer, [], wanted=3, from_heads=False, seconds=10.0)
    claimed(claimer, [], wanted=3, from_heads=False, seconds=20.0)
    assert claimer._walk_allowed_at > time.monotonic() + 100
    claimed(claimer, [], wanted=3, from_heads=True, seconds=1.0)
    assert claimer._walk_allowed_at < time.monotonic() + 10


def test_keys_are_settled_by_whole_claims_only(make: Make) -> None:
    """A claim of first jobs leaves out what is limited since the last scan."""
    claimer = make_spread(make, *PAIRS)
    claimed(claimer, [], wanted=100, from_heads=False)
    claimer.settled.begin(5)
    assert not claimer.settled
    claimed(claimer, [], wanted=100, from_heads=True)
    claimer.settled.begin(5)
    assert claimer.settled


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_batch_that_stays_empty_is_followed_at_once(planning: Planning, in_turn: bool) -> None:
    claimer = planning.claiming.claimer
    claimer.note_lanes(alone(KEYED))
    spread(claimer, "a", "b", "c")
    claimer.note_scan(0.0)
    turn = Turn(1)
    turn.looks = turn.claims = True
    turn.holds = in_turn
    planning.look._note_claimed(turn, claimer.plan(3, from_heads=False), [])
    now = time.monotonic()
    planning.look.set_next(turn, now)
    assert (planning.look.pace.look_at == 0.0) == in_turn


@pytest.mark.parametrize("falls_short", [True, False])
def test_a_drain_does_not_end_with_batches_that_fell_short(
    monkeypatch: pytest.MonkeyPatch, falls_short: bool
) -> None:
    draining = Planning(drain=True)
    draining.claiming.async_slots.stop()
    ends: list[str] = []
    monkeypatch.setattr(draining.pump, "_on_limit", ends.append)
    turn = Turn(1)
    turn.looks = turn.scans = turn.claims = turn.walks = turn.holds = True
    turn.lanes, turn.falls_short = alone(KEYED), falls_short
    for _ in range(2):
        draining.pump._check_limits(turn)
    assert ends == ([] if falls_short else ["nothing is left that may run now"])


@pytest.mark.django_db(transaction=True)
def test_a_worker_claims_the_first_jobs_and_then_all_others(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 lanes fill its batches, and one is left with most of the jobs."""
    depths: list[Depth] = []
    send_claim = claims.send_keyed_claim

    def send_keyed_claim(cursor: Any, floors: Any, segments: Any, **others: Any) -> None:
        depths.append(others["depth"])
        send_claim(cursor, floors, segments, **others)

    monkeypatch.setattr(claims, "send_keyed_claim", send_keyed_claim)
    for number in range(40):
        make_keyed(5, f"shop:{number}", 2)
    make_keyed(300, "shop:large", 50)
    start_thread(concurrency=2, poll_interval=NEVER)
    wait_until(lambda: count_jobs(status="successful") == 500)
    assert depths[0] is Depth.SHARE
    assert set(depths) > {Depth.SHARE}
