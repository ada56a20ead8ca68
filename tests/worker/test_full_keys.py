"""A worker beside keys that are full: each poll walks past them, and finds what nobody told of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.helpers import execute, wait_until
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def has_run(job_id: int) -> bool:
    return bool(get_job(job_id).status == "successful")


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM pgjobs_job WHERE id = %s",
        "INSERT INTO pgjobs_concurrency_limit (pattern, max_running) VALUES ('shop:0', 2) -- %s",
    ],
    ids=["a running job that vanishes", "a limit"],
)
def test_a_write_that_nobody_announces_is_noticed(start_thread: Start, query: str) -> None:
    elsewhere = make_worker(lease_seconds=600)
    keys = [f"shop:{number}" for number in range(3)]
    running = [make_running_job(elsewhere, concurrency_key=key).id for key in keys]
    waiting = [make_job(concurrency_key=key) for key in keys]
    start_thread(poll_interval=0.05)
    job_id = make_job()
    wait_until(lambda: has_run(job_id))
    execute(query, running[0])
    wait_until(lambda: has_run(waiting[0]))
    assert not has_run(waiting[1])


def test_the_first_rate_limit_lets_jobs_start_that_name_it(start_thread: Start) -> None:
    job_id = make_job(rate_limit_keys="api")
    start_thread(poll_interval=0.05)
    execute("INSERT INTO pgjobs_rate_limit (name, count, period) VALUES ('api', 100, 1)")
    wait_until(lambda: has_run(job_id))
