"""Job.explain() of limits: keys, their order, queues, rate limits."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.functions import Now
from psycopg import sql

from django_pgjobs.control.explain import explain
from django_pgjobs.models import Pause, Worker
from django_pgjobs.models.control import ConcurrencyLimit, QueueSettings, RateLimit
from tests.explaining import codes, only
from tests.factories import make_job, make_jobs, make_running_job, make_worker, use_rate

pytestmark = pytest.mark.django_db

LATER = sql.SQL("clock_timestamp() + interval '1 hour'")


@pytest.fixture(autouse=True)
def worker(db: None) -> int:
    """Register a live worker that would take every job of these tests."""
    return make_worker(task_paths=["tests.tasks.add"], slots=1000)


def test_a_full_key_names_those_that_run(worker: int) -> None:
    running = [make_running_job(worker, concurrency_key="shop:7").id for _ in range(2)]
    job_id = make_job(concurrency_key="shop:7", concurrency_limit=2)
    reason = only(job_id)
    assert (reason.code, reason.refs) == ("key_full", tuple(running))
    assert reason.text == (
        f"2 of 2 jobs of the concurrency key “shop:7” run: {running[0]}, {running[1]}."
    )


def test_a_full_key_names_the_row_that_limits_it(worker: int) -> None:
    """S1.15: dynamic settings; the longest pattern counts, the key itself before all."""
    make_running_job(worker, concurrency_key="shop:7")
    job_id = make_job(concurrency_key="shop:7", concurrency_limit=9)
    assert explain(job_id).is_ready_to_run
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=1)
    ConcurrencyLimit.objects.create(pattern="*", max_running=50)
    assert only(job_id).text.endswith("The limit is the row “shop:*”.")
    ConcurrencyLimit.objects.create(pattern="shop:7", max_running=2)
    assert explain(job_id).is_ready_to_run


def test_a_job_whose_own_limit_is_smaller_than_that_of_the_first_waits(worker: int) -> None:
    """The claim takes the first of them, and this one only when fewer run."""
    running = [make_running_job(worker, concurrency_key="shop:7").id for _ in range(3)]
    first = make_job(concurrency_key="shop:7", concurrency_limit=9)
    job_id = make_job(concurrency_key="shop:7", concurrency_limit=2)
    assert explain(first).is_ready_to_run
    reason = only(job_id)
    assert (reason.code, reason.refs) == ("key_full", tuple(running))
    assert reason.text.startswith("3 of 2 jobs of the concurrency key “shop:7” run: ")


def test_a_long_list_of_running_jobs_is_cut(worker: int) -> None:
    for _ in range(12):
        make_running_job(worker, concurrency_key="shop:7")
    job_id = make_job(concurrency_key="shop:7", concurrency_limit=12)
    assert only(job_id).text.endswith("and 2 more.")


def test_a_job_behind_the_first_of_its_key_learns_what_that_one_waits_for() -> None:
    """The order of a key is kept, and one that waits for its retry blocks it."""
    first = make_job(concurrency_key="shop:7", due_at=LATER, note="retry after Mishap", attempts=1)
    second = make_job(concurrency_key="shop:7", priority=100, queue_name="mail")
    reason = only(second)
    assert (reason.code, reason.refs) == ("key_order", (first,))
    assert f"job {first} is before this one. That job: Attempt 1 failed" in reason.text


def test_a_job_behind_one_that_may_start() -> None:
    first, second = make_jobs(2, concurrency_key="shop:7")
    assert only(second).text.endswith(f"and job {first} is before this one.")
    assert explain(first).is_ready_to_run


def test_while_another_of_its_key_runs_that_is_said_first(worker: int) -> None:
    running = make_running_job(worker, concurrency_key="shop:7").id
    first, second = make_jobs(2, concurrency_key="shop:7")
    found = explain(second).reasons
    assert [(reason.code, reason.refs) for reason in found] == [
        ("key_full", (running,)),
        ("key_order", (first,)),
    ]


def test_jobs_that_are_scheduled_or_blocked_from_the_start_do_not_hold_up_their_key() -> None:
    make_job(concurrency_key="shop:7", run_after=LATER)
    make_job(concurrency_key="shop:7", hold="dependencies")
    assert explain(make_job(concurrency_key="shop:7")).is_ready_to_run


def test_with_ordering_skip_waiting_ones_are_passed() -> None:
    make_job(concurrency_key="shop:7", due_at=LATER, note="retry after Mishap")
    assert explain(make_job(concurrency_key="shop:7", skips_waiting=True)).is_ready_to_run


def test_a_full_queue_names_those_that_run(worker: int) -> None:
    running = make_running_job(worker, queue_name="mail").id
    job_id = make_job(queue_name="mail")
    QueueSettings.objects.create(queue_name="mail", max_running=1)
    reason = only(job_id)
    assert (reason.code, reason.refs) == ("queue_full", (running,))
    assert reason.text.endswith(f"1 of 1 jobs run: {running}.")
    QueueSettings.objects.update(max_running=2)
    assert explain(job_id).is_ready_to_run


def test_a_used_up_rate_limit_says_when_there_is_enough_again() -> None:
    RateLimit.objects.create(name="shopify", count=10, period=100, burst=1)
    job_id = make_job(rate_limit_keys="shopify:7\nother")
    RateLimit.objects.create(name="other", count=1, period=1)
    assert explain(job_id).is_ready_to_run
    use_rate("shopify:7", ago=-80)
    reason = only(job_id)
    assert reason.code == "rate_limit"
    assert reason.text.startswith("The rate limit “shopify:7” (10 in 100 s) is used up: it has en")
    assert "(in 89." in reason.text or "(in 90 s)" in reason.text
    assert reason.text.endswith("it takes 1.")


def test_the_limit_of_the_exact_key_goes_first() -> None:
    RateLimit.objects.create(name="shopify", count=10, period=100)
    RateLimit.objects.create(name="shopify:7", count=1, period=100)
    assert codes(make_job(rate_limit_keys="shopify:7", rate_cost=2)) == ["cost_above_burst"]
    RateLimit.objects.filter(name="shopify:7").update(count=10, burst=2)
    assert explain(make_job(rate_limit_keys="shopify:7", rate_cost=1)).is_ready_to_run


def test_a_rate_limit_that_does_not_exist_says_what_to_do() -> None:
    reason = only(make_job(rate_limit_keys="shopify:7"))
    assert reason.code == "no_rate_limit"
    assert "no rate limit for “shopify:7”. Make one named “shopify”" in reason.text


def test_a_cost_above_the_burst_can_never_start() -> None:
    RateLimit.objects.create(name="shopify", count=10, period=1, burst=2)
    reason = only(make_job(rate_limit_keys="shopify:7", rate_cost=3, run_after=None))
    assert reason.code == "cost_above_burst"
    assert "burst of 2, and it takes 3. Raise the burst" in reason.text


def test_an_older_job_of_the_same_keys_that_takes_more_goes_first() -> None:
    """The claim judges all of a lane by its first job."""
    RateLimit.objects.create(name="shopify", count=10, period=1, burst=2)
    first = make_job(rate_limit_keys="shopify:7", rate_cost=3)
    reason = only(make_job(rate_limit_keys="shopify:7"))
    assert (reason.code, reason.refs) == ("cost_above_burst", (first,))
    assert f"job {first}, which is before this one, takes 3" in reason.text


def test_what_can_never_be_is_said_of_a_job_that_is_not_due_yet() -> None:
    job_id = make_job(rate_limit_keys="shopify:7", run_after=LATER)
    assert codes(job_id) == ["scheduled", "no_rate_limit"]


@pytest.mark.parametrize("ending", [{"ended_at": Now()}, {"quiet_requested_at": Now()}])
def test_without_a_worker_that_is_said_before_what_only_a_worker_ends(
    worker: int, ending: dict[str, Any]
) -> None:
    """The key is full, the queue is too, and the tokens are used up."""
    make_running_job(worker, concurrency_key="a", queue_name="mail")
    QueueSettings.objects.create(queue_name="mail", max_running=1)
    job_id = make_job(concurrency_key="a", queue_name="mail")
    assert codes(job_id) == ["key_full", "queue_full"]
    Worker.objects.filter(pk=worker).update(**ending)
    first, *rest = codes(job_id)
    assert first in ("no_worker", "workers_quiet")
    assert rest == ["key_full", "queue_full"]


def test_what_stays_until_somebody_acts_goes_before_what_passes(worker: int) -> None:
    make_running_job(worker, concurrency_key="a")
    Pause.objects.create(kind="queue", name="default")
    job_id = make_job(concurrency_key="a", rate_limit_keys="shopify:7")
    assert codes(job_id) == ["queue_paused", "no_rate_limit", "key_full"]
    Worker.objects.update(ended_at=Now())
    assert codes(job_id) == ["queue_paused", "no_rate_limit", "no_worker", "key_full"]


def test_a_line_without_a_worker_begins_with_that() -> None:
    make_job()
    Worker.objects.update(ended_at=Now())
    assert codes(make_job()) == ["no_worker", "behind"]
