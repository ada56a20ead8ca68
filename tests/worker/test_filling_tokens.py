"""Rows that are only given what their task declares, or that have expired, take no tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import sql

from django_pgjobs import try_acquire
from django_pgjobs.models import RateLimit
from django_pgjobs.testing import run_jobs
from tests.factories import count_jobs, get_job, make_job
from tests.helpers import wait_until
from tests.worker import declared
from tests.worker.support import ThreadedWorker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Drain = Callable[..., ThreadedWorker]
ALL = "declared-all"


@pytest.fixture(autouse=True)
def _ten_an_hour() -> None:
    for name in (ALL, "declared-api"):
        RateLimit.objects.create(name=name, count=10, period=3600)


def tokens_left() -> int:
    """Return how many tokens of the limit nobody has taken, and take them."""
    return sum(try_acquire(ALL) for _ in range(11))


def insert(count: int, **columns: Any) -> list[int]:
    """Insert rows that name the limit themselves; their task declares a concurrency key."""
    given = {"kwargs": {"shop_id": 7}, "rate_limit_keys": ALL} | columns
    return [make_job(declared.one_at_a_time.module_path, **given) for _ in range(count)]


def test_a_row_pays_when_it_runs_and_not_when_it_is_given_its_keys(drain: Drain) -> None:
    ids = insert(9)
    drain(concurrency=4)
    assert {get_job(job_id).status for job_id in ids} == {"successful"}
    assert tokens_left() == 1


def test_a_row_that_lacks_nothing_pays_once(drain: Drain) -> None:
    """It is given back all the same: the claim cannot tell that it lacks nothing."""
    ids = insert(9, concurrency_key="shop:7")
    drain(concurrency=4)
    assert [get_job(job_id).status for job_id in ids] == ["successful"] * 9
    assert tokens_left() == 1


def test_a_row_of_a_task_that_declares_nothing_pays_at_its_claim(start_thread: Drain) -> None:
    ids = [make_job(declared.free.module_path, rate_limit_keys=ALL) for _ in range(12)]
    start_thread(concurrency=4)
    wait_until(lambda: count_jobs(status="successful") == 10)
    assert tokens_left() == 0
    assert not get_job(ids[0]).is_declared


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_job_that_has_expired_when_it_is_claimed_takes_none(
    drain: Drain, is_declared: bool
) -> None:
    past = sql.SQL("now() - interval '1 minute'")
    late = insert(12, expires_at=past, is_declared=is_declared, concurrency_key="shop:7")
    drain(concurrency=4)
    assert {get_job(job_id).status for job_id in late} == {"cancelled"}
    assert tokens_left() == 10


def test_run_jobs_takes_tokens_once() -> None:
    insert(9)
    assert run_jobs(at_once=False) == 9
    assert tokens_left() == 1
