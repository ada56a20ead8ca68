"""What holds jobs back from our own workers holds them back from those over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from django_pgjobs import pause, resume
from django_pgjobs.http.looking import looks
from django_pgjobs.models import ConcurrencyLimit, QueueSettings, RateLimit, RateState
from tests.factories import get_job, let_rates_pass, make_job, make_running_job
from tests.http import tasks
from tests.http.support import Api
from tests.http.workers import Remote

pytestmark = pytest.mark.usefixtures("hold")

HOUR = 3600.0


def claimed(worker: Remote, max_jobs: int = 20, **options: Any) -> list[int]:
    """Claim by a look of now; return the jobs."""
    looks.begin_anew()
    return [int(each["job"]) for each in worker.claim(max_jobs, **options)]


def bills(shop: int, count: int) -> list[int]:
    """Enqueue jobs of one shop, of which one may run."""
    return [int(tasks.bill.enqueue(shop, number).id) for number in range(count)]


def packs(shop: int, count: int) -> list[int]:
    """Enqueue jobs of one shop, of which two may run."""
    return [int(tasks.pack.enqueue(shop, number).id) for number in range(count)]


def plain(count: int, **options: Any) -> list[int]:
    """Enqueue jobs without keys."""
    return [int(tasks.resize.using(**options).enqueue(number).id) for number in range(count)]


# Keys


def test_no_more_of_a_key_run_than_may(api: Api) -> None:
    """G9: one request that asks for many gets no more, and neither does the next worker."""
    jobs = packs(1, 5)
    first, second = Remote(api), Remote(api)
    given = first.claim(20)
    assert [int(each["job"]) for each in given] == jobs[:2]
    assert claimed(second) == []
    first.finish(given[1])
    assert claimed(second) == [jobs[2]]
    first.say(given[0], "release")
    assert claimed(second) == [jobs[0]]


def test_a_limit_for_a_pattern_of_keys_holds(api: Api) -> None:
    ConcurrencyLimit.objects.create(pattern="pack:*", max_running=4)
    jobs = packs(1, 6)
    worker = Remote(api)
    assert claimed(worker) == jobs[:4]
    assert claimed(worker) == []


def test_jobs_of_a_key_start_in_their_order_whatever_became_of_the_first(api: Api) -> None:
    """S2.23: a failure that is to be tried again keeps its place."""
    first, second = bills(1, 2)
    worker = Remote(api)
    [given] = worker.claim(20)
    error = {"error": {"type": "E"}, "retry_after": HOUR}
    worker.say(given, "failure", error)
    assert claimed(worker) == []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job_live SET due_at = now() WHERE id = %s", [first])
    looks.begin_anew()
    [given] = worker.claim(20)
    assert int(given["job"]) == first
    worker.say(given, "failure", {"error": {"type": "E"}, "retry": False})
    assert claimed(worker) == [second]


def test_jobs_of_our_own_workers_count_for_a_key(api: Api) -> None:
    ours = make_running_job(concurrency_key="pack:1", concurrency_limit=2)
    jobs = packs(1, 3)
    assert claimed(Remote(api)) == jobs[:1]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET status = 'successful' WHERE id = %s", [ours.id])
    assert claimed(Remote(api)) == jobs[1:2]


# Rate limits


def test_tokens_are_taken_and_come_back(api: Api) -> None:
    RateLimit.objects.create(name="partner", count=3, period=HOUR, burst=3)
    jobs = [int(tasks.push.enqueue(1, number).id) for number in range(5)]
    another = int(tasks.push.enqueue(2).id)
    worker = Remote(api)
    assert sorted(claimed(worker)) == [*jobs[:3], another]
    assert set(RateState.objects.values_list("key", flat=True)) == {"partner:1", "partner:2"}
    assert claimed(Remote(api)) == []
    let_rates_pass(HOUR / 2)
    assert claimed(worker) == []
    let_rates_pass(HOUR / 2)
    assert claimed(worker) == jobs[3:]


def test_a_job_that_was_given_back_has_spent_its_token(api: Api) -> None:
    RateLimit.objects.create(name="partner", count=1, period=HOUR)
    job_id = int(tasks.push.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    worker.say(given, "release")
    assert claimed(worker) == []
    let_rates_pass(HOUR)
    assert claimed(worker) == [job_id]


# Pauses


@pytest.mark.parametrize(
    ("target", "left"),
    [
        ({"queue": "node"}, set()),
        ({"task": tasks.bill}, {"resize"}),
        ({"key": "shop:1"}, {"resize", "shop:2"}),
        ({"key": "shop:*"}, {"resize"}),
    ],
    ids=["queue", "task", "key", "pattern"],
)
def test_nothing_paused_is_given(api: Api, target: dict[str, Any], left: set[str]) -> None:
    """S1.15."""
    jobs = {"resize": plain(1)[0], "shop:1": bills(1, 1)[0], "shop:2": bills(2, 1)[0]}
    worker = Remote(api)
    pause(**target)
    assert set(claimed(worker)) == {jobs[name] for name in left}
    resume(**target)
    assert set(claimed(worker)) == {jobs[name] for name in jobs.keys() - left}


def test_a_pause_holds_for_what_was_looked_for_before(api: Api) -> None:
    """What a process knows of places is up to a second old; the claim itself looks at pauses."""
    plain(2)
    bills(1, 1)
    worker = Remote(api)
    looks.get(since=0.0)
    pause(queue="node")
    assert worker.claim(5) == []


# Queues: limits and boosts


@pytest.mark.parametrize("enqueue", [plain, lambda count: packs(1, count)], ids=["plain", "keyed"])
def test_a_queue_has_a_limit_over_all_workers(api: Api, enqueue: Any) -> None:
    QueueSettings.objects.create(queue_name="node", max_running=2)
    ConcurrencyLimit.objects.create(pattern="pack:*", max_running=9)
    make_running_job(queue_name="node")
    jobs = enqueue(4)
    worker = Remote(api)
    given = worker.claim(20)
    assert [int(each["job"]) for each in given] == jobs[:1]
    assert claimed(Remote(api)) == []
    worker.finish(given[0])
    assert claimed(worker) == jobs[1:2]


def test_the_highest_priority_goes_first(api: Api) -> None:
    low, high = plain(2, priority=-5), plain(2, priority=5)
    keyed = [int(tasks.pack.using(priority=1).enqueue(1).id)]
    worker = Remote(api)
    assert claimed(worker, 2) == high
    assert claimed(worker, 2) == [*keyed, low[0]]


@pytest.mark.parametrize("boosted", ["node", "python"])
def test_a_boost_lifts_a_queue(api: Api, boosted: str) -> None:
    """S4.19: what has keys and what has none, over the priorities of others."""
    other = "python" if boosted == "node" else "node"
    first = [
        int(tasks.resize.using(queue_name=boosted, priority=-3).enqueue(1).id),
        int(tasks.bill.using(queue_name=boosted, priority=-3).enqueue(1).id),
    ]
    then = [
        int(tasks.resize.using(queue_name=other, priority=5).enqueue(1).id),
        int(tasks.bill.using(queue_name=other, priority=5).enqueue(2).id),
    ]
    QueueSettings.objects.create(queue_name=boosted, boost=10)
    worker = Remote(api)
    assert sorted(claimed(worker, 2)) == first
    assert sorted(claimed(worker, 2)) == then


def test_a_boosted_queue_is_walked_before_the_others(api: Api) -> None:
    """More lanes wait than one claim lists."""
    for shop in range(150):
        make_job(
            tasks.bill.module_path,
            args=[shop],
            queue_name="node",
            concurrency_key=f"shop:{shop}",
            priority=5,
        )
    boosted = int(tasks.bill.using(queue_name="python").enqueue(1000).id)
    QueueSettings.objects.create(queue_name="python", boost=10)
    assert claimed(Remote(api), 1) == [boosted]


# Fairness


def test_keys_take_turns(api: Api) -> None:
    """S4.4: who enqueued a lot has no more than the others."""
    large, small = packs(1, 8), packs(2, 1)
    ConcurrencyLimit.objects.create(pattern="pack:*", max_running=9)
    worker = Remote(api)
    assert set(claimed(worker, 2)) == {large[0], *small}
    later = packs(3, 2)
    assert set(claimed(worker, 2)) == {large[1], later[0]}


def test_one_at_a_time_walks_through_the_keys(api: Api) -> None:
    """The walk goes on behind the key that was served last, also from one request to the next."""
    ConcurrencyLimit.objects.create(pattern="pack:*", max_running=9)
    for shop in (1, 2, 3):
        packs(shop, 3)
    worker = Remote(api)
    looks.begin_anew()
    shops = [given["args"][0] for _ in range(6) for given in worker.claim(1)]
    assert sorted(shops[:3]) == sorted(shops[3:]) == [1, 2, 3]


# When jobs may start


def test_what_waits_for_others_is_given_after_them(api: Api) -> None:
    first, second = tasks.resize.enqueue(1), tasks.bill.enqueue(1)
    behind = int(tasks.convert.using(after=[first, second]).enqueue().id)
    worker = Remote(api)
    given = worker.claim(20)
    assert {int(each["job"]) for each in given} == {int(first.id), int(second.id)}
    worker.finish(given[0])
    assert claimed(worker) == []
    worker.finish(given[1])
    assert claimed(worker) == [behind]


@pytest.mark.parametrize(
    ("policy", "status"), [("cancel", "cancelled"), ("run", "running"), ("hold", "ready")]
)
def test_a_failure_over_http_decides_what_waits_for_it(api: Api, policy: str, status: str) -> None:
    first = tasks.resize.enqueue(1)
    behind = int(tasks.convert.using(after=[first], after_failure=policy).enqueue().id)
    worker = Remote(api)
    [given] = worker.claim(20)
    worker.say(given, "failure", {"error": {"type": "E"}, "retry": False})
    claimed(worker)
    assert get_job(behind).status == status


def test_a_scheduled_job_is_given_when_its_time_has_come(api: Api) -> None:
    later = tasks.resize.using(run_after=timedelta(hours=1))
    job_id = int(later.enqueue(1).id)
    worker = Remote(api)
    assert claimed(worker) == []
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job_live SET due_at = now(), run_after = now() WHERE id = %s", [job_id]
        )
    assert claimed(worker) == [job_id]


def test_after_its_last_attempt_a_job_is_given_no_more(api: Api) -> None:
    job_id = int(tasks.convert.using(max_attempts=2).enqueue().id)
    worker = Remote(api)
    for attempt in (1, 2):
        looks.begin_anew()
        [given] = worker.claim(20)
        assert (given["attempt"], given["max_attempts"]) == (attempt, 2)
        worker.say(given, "failure", {"error": {"type": "E"}, "retry": True})
    assert claimed(worker) == []
    job = get_job(job_id)
    assert (job.status, len(job.errors)) == ("failed", 2)


def test_a_row_by_sql_of_a_rate_limited_task_gets_its_limit_before_it_starts(api: Api) -> None:
    """What its task declares is written into the row, and then holds."""
    RateLimit.objects.create(name="partner", count=1, period=HOUR)
    path = tasks.push.module_path
    jobs = [make_job(path, args=[7], queue_name="node") for _ in range(3)]
    worker = Remote(api)
    assert claimed(worker) == jobs[:1]
    assert [get_job(each).rate_limit_keys for each in jobs] == ["partner:7"] * 3
    assert [get_job(each).attempts for each in jobs] == [1, 0, 0]
    assert claimed(worker) == []
    let_rates_pass(HOUR)
    assert claimed(worker) == jobs[1:2]
