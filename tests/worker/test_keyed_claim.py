"""The claim of jobs with keys: order, limits, turns, rate limits."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection as django_connection
from django.db import transaction
from psycopg import sql

from django_pgjobs.models.control import ConcurrencyLimit, Pause, RateLimit, RateState
from django_pgjobs.queries.claims import Segment
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import get_job, let_rates_pass, make_job, make_jobs
from tests.worker.keyed import KEYED, keyed_claim, make_keyed
from tests.worker.support import ODD_NAMES, ids

pytestmark = pytest.mark.django_db(transaction=True)


def change(job_id: int, **columns: Any) -> None:
    """Set columns of a job; anything may be SQL."""
    pairs = sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), value) for name, value in columns.items()
    )
    with django_connection.cursor() as cursor:
        cursor.execute(sql.SQL("UPDATE pgjobs_job SET {} WHERE id = {}").format(pairs, job_id))


LATER = sql.SQL("clock_timestamp() + interval '1 hour'")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_key_is_itself(own: OwnConnection, worker: int, name: str) -> None:
    [job], [after] = make_keyed(1, name), make_keyed(1, f"{name}0")
    lane = get_job(job).lane
    assert ids(keyed_claim(own, worker, segments=[Segment.behind(KEYED, lane)])) == [after]
    assert ids(keyed_claim(own, worker, segments=[Segment.single(KEYED, lane)])) == [job]


def test_jobs_of_a_key_run_one_at_a_time_in_order(own: OwnConnection, worker: int) -> None:
    """G8, S1.9, S1.11, S1.13, S2.23."""
    first, second, third = make_keyed(3, "shop:1")
    assert ids(keyed_claim(own, worker)) == [first]
    assert keyed_claim(own, worker) == []
    change(first, status="successful")
    assert ids(keyed_claim(own, worker)) == [second]
    change(second, status="failed")
    assert ids(keyed_claim(own, worker)) == [third]


def test_the_order_of_a_key_spans_queues_priorities_and_tasks(
    own: OwnConnection, worker: int
) -> None:
    """G8, S2.23: across types."""
    first = make_job(concurrency_key="shop:1", queue_name="slow", priority=-50)
    second = make_job("tests.tasks.echo", concurrency_key="shop:1", priority=50)
    assert ids(keyed_claim(own, worker)) == [first]
    assert keyed_claim(own, worker) == []
    change(first, status="successful")
    assert ids(keyed_claim(own, worker)) == [second]


@pytest.mark.parametrize(("skips", "claimed"), [(False, 0), (True, 1)])
def test_a_head_that_waits_for_its_retry_blocks_its_key_or_lets_others_pass(
    own: OwnConnection, worker: int, skips: bool, claimed: int
) -> None:
    """G8, F31."""
    first, second = make_keyed(2, "shop:1", skips_waiting=skips)
    change(first, due_at=LATER, claim=2, attempts=1)
    assert ids(keyed_claim(own, worker)) == [second][:claimed]


def test_a_job_that_was_meant_for_later_does_not_hold_up_its_key(
    own: OwnConnection, worker: int
) -> None:
    """procrastinate#1599."""
    make_job(concurrency_key="shop:1", run_after=LATER)
    now = make_job(concurrency_key="shop:1")
    assert ids(keyed_claim(own, worker)) == [now]


def test_never_more_than_the_limit_of_a_key_run(own: OwnConnection, worker: int) -> None:
    """G9, S4.17, S4.21: not even with a batch."""
    jobs = make_keyed(9, "shop:1", 5)
    assert ids(keyed_claim(own, worker)) == jobs[:5]
    assert keyed_claim(own, worker) == []
    change(jobs[2], status="ready", claim=2)
    assert ids(keyed_claim(own, worker)) == [jobs[2]]


def test_a_job_with_a_smaller_limit_than_others_of_its_key_waits_for_them(
    own: OwnConnection, worker: int
) -> None:
    """G9: two tasks share a key, and one of them says nothing of a limit."""
    [first] = make_keyed(1, "shop:1", 3)
    [alone] = make_keyed(1, "shop:1")
    [third] = make_keyed(1, "shop:1", 3)
    assert ids(keyed_claim(own, worker)) == [first, third]
    assert keyed_claim(own, worker) == []
    change(first, status="successful")
    assert keyed_claim(own, worker) == []
    change(third, status="successful")
    assert ids(keyed_claim(own, worker)) == [alone]


def test_the_limit_counts_over_lanes_of_different_priority_and_queue(
    own: OwnConnection, worker: int
) -> None:
    """G9."""
    make_keyed(4, "shop:1", 5, priority=9)
    make_keyed(4, "shop:1", 5, queue_name="slow")
    make_keyed(4, "shop:1", 5)
    assert len(keyed_claim(own, worker)) == 5
    assert keyed_claim(own, worker) == []


def test_a_saturated_key_does_not_hold_up_the_others(own: OwnConnection, worker: int) -> None:
    """S4.17, S5.14."""
    make_keyed(500, "big", 2)
    small = [make_keyed(1, f"small:{number}")[0] for number in range(6)]
    assert set(small) <= set(ids(keyed_claim(own, worker)))


def test_lanes_take_turns(own: OwnConnection, worker: int) -> None:
    """S5.14."""
    big = make_keyed(100, "big", 50)
    small = make_keyed(100, "small", 50)
    rows = ids(keyed_claim(own, worker, 10))
    assert rows == big[:5] + small[:5]


def test_a_weight_gives_a_key_a_larger_share(own: OwnConnection, worker: int) -> None:
    ConcurrencyLimit.objects.create(pattern="big", max_running=50, weight=4)
    big = make_keyed(100, "big")
    small = make_keyed(100, "small", 50)
    rows = ids(keyed_claim(own, worker, 10))
    assert (len(set(rows) & set(big)), len(set(rows) & set(small))) == (8, 2)


def test_higher_priority_comes_first_with_keys_and_without(own: OwnConnection, worker: int) -> None:
    """S4.19."""
    low = make_keyed(3, "low", 50)
    high = make_keyed(3, "high", 50, priority=5)
    plain = make_jobs(3, priority=9)
    assert ids(keyed_claim(own, worker, 6)) == plain + high
    assert ids(keyed_claim(own, worker, 6)) == low


def test_the_best_priority_comes_first_over_many_queues(own: OwnConnection, worker: int) -> None:
    """A plan that hashes the queues reads them in another order."""
    jobs = [
        make_job(concurrency_key=f"shop:{number}", queue_name=f"q{number}", priority=-number)
        for number in range(8)
    ]
    assert [ids(keyed_claim(own, worker, 1)) for _ in jobs] == [[job] for job in jobs]


@pytest.mark.parametrize("max_jobs", [1, 2])
def test_a_lane_of_which_nothing_can_be_taken_takes_no_place(
    own: OwnConnection, worker: int, max_jobs: int
) -> None:
    """G14: even one job more is found behind those of a paused and of an unknown task."""
    make_job("tests.tasks.echo", concurrency_key="a")
    make_job("no.such", concurrency_key="b")
    make_job("tests.tasks.echo", rate_limit_keys="c")
    other = make_job(concurrency_key="d")
    Pause.objects.create(kind="task", name="tests.tasks.echo")
    assert ids(keyed_claim(own, worker, max_jobs, passed_over_paths=["no.such"])) == [other]


def test_one_lane_of_higher_priority_takes_the_whole_batch(own: OwnConnection, worker: int) -> None:
    make_keyed(30, "low", 50)
    high = make_keyed(30, "high", 50, priority=5)
    assert ids(keyed_claim(own, worker, 20)) == high[:20]


def test_a_full_batch_leaves_no_job_of_a_better_lane_for_worse_ones(
    own: OwnConnection, worker: int
) -> None:
    """The first look at each lane takes two of a hundred, and all lanes together fill it."""
    better = [job for key in "ab" for job in make_keyed(60, key, 60, priority=5)]
    for number in range(60):
        make_keyed(2, f"worse:{number}", 2)
    rows = ids(keyed_claim(own, worker, 100))
    assert set(rows) < set(better)
    assert [len(set(rows) & set(jobs)) for jobs in (better[:60], better[60:])] == [50, 50]


def test_lanes_share_what_a_first_look_at_each_left_of_the_batch(
    own: OwnConnection, worker: int
) -> None:
    """A lane takes no more than its share, even if another one has fewer jobs than that."""
    short = make_keyed(3, "short", 60)
    long = make_keyed(60, "long", 60)
    assert ids(keyed_claim(own, worker, 40)) == short + long[:20]
    assert ids(keyed_claim(own, worker, 100)) == long[20:]


def test_jobs_without_keys_take_turns_with_those_that_have_some(
    own: OwnConnection, worker: int
) -> None:
    plain = make_jobs(30)
    keyed = make_keyed(30, "shop:1", 50)
    assert sorted(ids(keyed_claim(own, worker, 10))) == sorted(plain[:5] + keyed[:5])


@pytest.mark.parametrize(
    ("pattern", "claimed"), [("shop:1", 3), ("shop:*", 3), ("*", 3), ("shop", 1), ("shop:_", 1)]
)
def test_a_limit_in_the_table_goes_before_that_of_the_job(
    own: OwnConnection, worker: int, pattern: str, claimed: int
) -> None:
    """S1.15: dynamic settings, effective at the next claim."""
    make_keyed(5, "shop:1", 1)
    ConcurrencyLimit.objects.create(pattern=pattern, max_running=3)
    assert len(keyed_claim(own, worker)) == claimed


def test_the_key_itself_goes_before_a_pattern_and_a_long_pattern_before_a_short_one(
    own: OwnConnection, worker: int
) -> None:
    make_keyed(9, "shop:1", 9)
    make_keyed(9, "shop:2", 9)
    for pattern, most in (("*", 5), ("shop:*", 2), ("shop:1", 4)):
        ConcurrencyLimit.objects.create(pattern=pattern, max_running=most)
    rows = keyed_claim(own, worker, 20)
    assert [row.lane for row in rows] == ["shop:1\n"] * 4 + ["shop:2\n"] * 2


def test_only_who_is_in_turn_claims_jobs_with_keys(own: OwnConnection, worker: int) -> None:
    """DESIGN 9.2; the other one still claims jobs without keys."""
    keyed_claim(own, worker)
    make_keyed(3, "shop:1", 3)
    plain = make_jobs(2)
    with transaction.atomic(), django_connection.cursor() as cursor:
        cursor.execute("SELECT FROM pgjobs_keyed_claim FOR UPDATE")
        assert ids(keyed_claim(own, worker)) == plain
    assert len(keyed_claim(own, worker)) == 3


def test_a_segment_is_read_from_one_lane_on_and_up_to_another(
    own: OwnConnection, worker: int
) -> None:
    jobs = {key: make_keyed(1, key)[0] for key in "abcd"}
    between = keyed_claim(own, worker, segments=[Segment(KEYED, "b", "b\n")])
    assert ids(between) == [jobs["b"]]
    single = keyed_claim(own, worker, segments=[Segment.single(KEYED, "c\n")])
    assert ids(single) == [jobs["c"]]
    behind = keyed_claim(own, worker, segments=[Segment.behind(KEYED, "a\n")])
    assert ids(behind) == [jobs["d"]]


def test_a_rate_limit_is_never_exceeded_by_a_claim(own: OwnConnection, worker: int) -> None:
    """G10, S4.25: counted in the database, before the start."""
    RateLimit.objects.create(name="api", count=100, period=3600, burst=4)
    jobs = make_jobs(9, rate_limit_keys="api:1")
    assert ids(keyed_claim(own, worker)) == jobs[:4]
    assert keyed_claim(own, worker) == []


def test_a_claim_without_tokens_leaves_jobs_with_rate_limits_alone(
    own: OwnConnection, worker: int
) -> None:
    """It is sent where no rate limit exists, and one may have been made since that was asked."""
    RateLimit.objects.create(name="api", count=100, period=3600)
    make_jobs(2, rate_limit_keys="api")
    other = make_keyed(1, "shop:1")
    assert ids(keyed_claim(own, worker, takes_tokens=False)) == other


def test_each_key_of_a_rate_limit_is_counted_for_itself(own: OwnConnection, worker: int) -> None:
    RateLimit.objects.create(name="api", count=100, period=3600, burst=2)
    RateLimit.objects.create(name="api:7", count=100, period=3600, burst=3)
    for key in ("api:1", "api:7"):
        make_jobs(9, rate_limit_keys=key)
    lanes = [row.lane for row in keyed_claim(own, worker)]
    assert lanes == ["\napi:1"] * 2 + ["\napi:7"] * 3


def test_a_start_takes_its_cost_of_every_limit_it_names(own: OwnConnection, worker: int) -> None:
    """Several limits on one task: per second and per day."""
    RateLimit.objects.create(name="second", count=100, period=3600, burst=9)
    RateLimit.objects.create(name="day", count=100, period=3600, burst=7)
    jobs = make_jobs(9, rate_limit_keys="day\nsecond", rate_cost=3)
    assert ids(keyed_claim(own, worker)) == jobs[:2]
    assert keyed_claim(own, worker) == []


def test_a_job_whose_rate_limit_does_not_exist_waits_and_stops_nobody(
    own: OwnConnection, worker: int
) -> None:
    make_jobs(2, rate_limit_keys="nothing")
    other = make_keyed(1, "shop:1")
    assert ids(keyed_claim(own, worker)) == other
    assert not RateState.objects.exists()


def test_tokens_come_back_evenly(own: OwnConnection, worker: int) -> None:
    RateLimit.objects.create(name="api", count=10, period=10, burst=1)
    jobs = make_jobs(12, rate_limit_keys="api")
    for number in range(10):
        assert ids(keyed_claim(own, worker)) == [jobs[number]]
        let_rates_pass(0.01 if number == 9 else 1.0)
    assert keyed_claim(own, worker) == []
    let_rates_pass(1.0)
    assert ids(keyed_claim(own, worker)) == jobs[10:11]


def test_what_is_claimed_late_is_made_up_for(own: OwnConnection, worker: int) -> None:
    """Only what a token itself was late is lost, once per period."""
    RateLimit.objects.create(name="api", count=10, period=100)
    jobs = make_jobs(40, rate_limit_keys="api")
    assert ids(keyed_claim(own, worker)) == jobs[:10]
    let_rates_pass(99)
    assert keyed_claim(own, worker) == []
    let_rates_pass(4)
    assert ids(keyed_claim(own, worker, 5)) == jobs[10:15]
    let_rates_pass(3)
    assert ids(keyed_claim(own, worker)) == jobs[15:20]
    let_rates_pass(98)
    assert ids(keyed_claim(own, worker)) == jobs[20:25]
    let_rates_pass(3)
    assert ids(keyed_claim(own, worker)) == jobs[25:30]


def test_a_rate_limit_that_was_not_used_saves_no_more_than_its_burst(
    own: OwnConnection, worker: int
) -> None:
    """G10: not even after an hour."""
    RateLimit.objects.create(name="api", count=10, period=10, burst=2)
    first = make_jobs(1, rate_limit_keys="api")
    assert ids(keyed_claim(own, worker)) == first
    jobs = make_jobs(9, rate_limit_keys="api")
    let_rates_pass(3600)
    assert ids(keyed_claim(own, worker)) == jobs[:2]
    assert keyed_claim(own, worker) == []
