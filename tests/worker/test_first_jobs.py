"""Claims of the first jobs of each lane and no more, where those fill the batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection as django_connection
from django.db import transaction

from django_pgjobs.controls import ConcurrencyLimit, Pause, QueueSettings, RateLimit
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import ClaimedRow, Depth, Group, Ready, Segment
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.claimer import Claimer
from django_pgjobs.worker.turn import Turn
from tests.factories import count_jobs, make_job, make_jobs, make_running_job, make_worker
from tests.helpers import wait_until
from tests.worker.keyed import keyed_claim, make_keyed
from tests.worker.support import DEFAULT, NEVER, ThreadedWorker, ids, row_of_job
from tests.worker.test_claimer import KEYED, Make, claimed, keyed, make
from tests.worker.test_look import Planning, planning

__all__ = ["make", "planning"]

Start = Callable[..., ThreadedWorker]
ALL = [Segment(KEYED)]
FEW = {"has_rate_limits": False, "gives_heads": True}
PLAIN = Ready("default", "mail", None, 0, 0, False, **FEW)

both = pytest.mark.parametrize("depth", [Depth.FIRSTS, Depth.HEAD], ids=lambda depth: depth.name)


def claim(
    own: OwnConnection, worker: int, max_jobs: int = 10, *, depth: Depth, **others: Any
) -> list[int]:
    """Claim of the lanes of the default queue, down to a depth."""
    given: dict[str, Any] = {"segments": ALL, "lanes": [], "takes_tokens": False} | others
    return ids(keyed_claim(own, worker, max_jobs, depth=depth, **given))


@both
@pytest.mark.django_db(transaction=True)
def test_each_lane_gives_its_first_job(own: OwnConnection, worker: int, depth: Depth) -> None:
    jobs = [make_keyed(3, f"shop:{number}", 2) for number in range(6)]
    assert claim(own, worker, 4, depth=depth) == [of_key[0] for of_key in jobs[:4]]
    rest = [Segment.behind(KEYED, "shop:3\n"), Segment(KEYED, "", "shop:3\n")]
    assert claim(own, worker, 4, segments=rest, depth=depth) == [
        *(of_key[1] for of_key in jobs[:2]),
        *(of_key[0] for of_key in jobs[4:]),
    ]


@both
@pytest.mark.django_db(transaction=True)
def test_it_claims_what_the_whole_statement_does(
    own: OwnConnection, worker: int, depth: Depth
) -> None:
    other = make_worker()
    for number in range(120):
        make_keyed(3, f"shop:{number}", 1 + number % 3)
        if number % 4 == 0:
            make_running_job(other, concurrency_key=f"shop:{number}")
    most = 99 if depth is Depth.HEAD else 100
    firsts = claim(own, worker, most, depth=depth)
    with own.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job_live SET rate_limit_keys = rate_limit_keys, status = 'ready'"
            " WHERE id = ANY ($1)",
            [firsts],
        )
    assert len(firsts) == most
    assert ids(keyed_claim(own, worker, most)) == firsts


@pytest.mark.django_db(transaction=True)
def test_a_lane_gives_a_fiftieth_of_a_large_batch_for_each_weight(
    own: OwnConnection, worker: int
) -> None:
    ConcurrencyLimit.objects.create(pattern="heavy", max_running=50, weight=3)
    heavy, light = make_keyed(20, "heavy"), make_keyed(20, "light", 50)
    assert claim(own, worker, 100, depth=Depth.FIRSTS) == heavy[:6] + light[:2]


@both
@pytest.mark.django_db(transaction=True)
def test_no_key_exceeds_its_limit(own: OwnConnection, worker: int, depth: Depth) -> None:
    make_running_job(make_worker(), concurrency_key="shop:1")
    jobs = make_keyed(9, "shop:1", 3)
    taken = [job for _ in range(3) for job in claim(own, worker, 200, depth=depth)]
    assert taken == jobs[:2]


@both
@pytest.mark.django_db(transaction=True)
def test_a_job_with_a_smaller_limit_than_the_first_waits(
    own: OwnConnection, worker: int, depth: Depth
) -> None:
    first = make_job(concurrency_key="shop:1", concurrency_limit=4, skips_waiting=True)
    make_job(concurrency_key="shop:1", concurrency_limit=1, skips_waiting=True)
    assert claim(own, worker, 200, depth=depth) == [first]


@both
@pytest.mark.django_db(transaction=True)
def test_a_head_that_waits_for_its_retry_blocks_its_key(
    own: OwnConnection, worker: int, depth: Depth
) -> None:
    head = make_job(concurrency_key="shop:1")
    make_job(concurrency_key="shop:1")
    with own.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET due_at = now() + interval '1 hour' WHERE id = $1", [head]
        )
    assert claim(own, worker, depth=depth) == []


@both
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("kind", "name"),
    [("queue", "default"), ("task", "tests.tasks.add"), ("key", "shop:1"), ("key", "shop:*")],
)
def test_nothing_paused_is_claimed(
    own: OwnConnection, worker: int, depth: Depth, kind: str, name: str
) -> None:
    jobs = make_keyed(2, "shop:1", 9)
    pause = Pause.objects.create(kind=kind, name=name)
    assert claim(own, worker, depth=depth) == []
    pause.delete()
    assert claim(own, worker, depth=depth) == jobs[:1]


@both
@pytest.mark.django_db(transaction=True)
def test_what_has_to_be_counted_is_left_alone(
    own: OwnConnection, worker: int, depth: Depth
) -> None:
    """A limit of a queue or of a rate may be younger than the worker's last scan."""
    RateLimit.objects.create(name="api", count=100, period=3600)
    make_jobs(2, rate_limit_keys="api")
    job = make_job(concurrency_key="shop:1")
    settings = QueueSettings.objects.create(queue_name="default", max_running=9)
    assert claim(own, worker, depth=depth) == []
    settings.delete()
    assert claim(own, worker, depth=depth) == [job]


@pytest.mark.django_db(transaction=True)
def test_a_task_that_the_worker_does_not_know_is_passed_over(
    own: OwnConnection, worker: int
) -> None:
    make_job("tests.tasks.echo", concurrency_key="shop:1", concurrency_limit=2)
    job = make_job(concurrency_key="shop:1", concurrency_limit=2)
    unknown = ["tests.tasks.echo"]
    assert claim(own, worker, unknown_paths=unknown, depth=Depth.HEAD) == []
    assert claim(own, worker, unknown_paths=unknown, depth=Depth.FIRSTS) == [job]


@pytest.mark.django_db(transaction=True)
def test_a_first_job_that_somebody_has_locked_is_not_waited_for(
    own: OwnConnection, worker: int
) -> None:
    first, second, other = *make_keyed(2, "shop:1", 2), *make_keyed(1, "shop:2")
    with transaction.atomic(), django_connection.cursor() as cursor:
        cursor.execute("SELECT FROM pgjobs_job WHERE id = %s FOR UPDATE", [first])
        assert claim(own, worker, depth=Depth.HEAD) == [other]
        assert claim(own, worker, depth=Depth.FIRSTS) == [second]
    assert claim(own, worker, depth=Depth.HEAD) == [first]


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
    assert claimer.plan(3, from_heads=False).depth is Depth.HEAD


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


@pytest.mark.django_db(transaction=True)
def test_a_scan_tells_whether_lanes_give_their_heads(own: OwnConnection) -> None:
    make_keyed(1, "shop:1")

    def gives_heads() -> bool:
        [[row]] = own.round_trip([claims.send_lane_listing])
        return Ready._make(row).gives_heads

    assert gives_heads()
    pause = Pause.objects.create(kind="task", name="tests.tasks.add")
    assert not gives_heads()
    Pause.objects.filter(pk=pause.pk).update(resume_at=pause.paused_at)
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=5)
    assert gives_heads()
    ConcurrencyLimit.objects.update(weight=2)
    assert not gives_heads()


@both
@pytest.mark.parametrize(
    "asked",
    [
        {"floors": {DEFAULT: claims.HEAD}},
        {"caps": {"default": 1}},
        {"takes_tokens": True},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_a_claim_of_first_jobs_leaves_out_cannot_be_asked_of_it(
    depth: Depth, asked: dict[str, Any]
) -> None:
    cursor: Any = None
    taker = claims.Taker(
        worker_id=1, worker_name="", unknown_paths=[], detailed=False, detailed_paths=[]
    )
    given = {"floors": {}, "caps": {}, "takes_tokens": False} | asked
    with pytest.raises(ValueError, match="without floors, caps and tokens"):
        claims.send_keyed_claim(
            cursor, segments=ALL, boosts={}, max_jobs=1, taker=taker, depth=depth, **given
        )


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
