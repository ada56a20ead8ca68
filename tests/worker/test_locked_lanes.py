"""A transaction of the project has locked many waiting jobs of one queue: other queues go on.

Jobs that a claim cannot take are not to get the slots that others could have.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from django_pgjobs.models import QueueSettings
from tests.factories import count_jobs, make_jobs
from tests.helpers import wait_until
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)
ADD = "tests.tasks.add"


@pytest.mark.parametrize("settings", [None, {"boost": 1}], ids=["plain", "boosted"])
def test_many_locked_jobs_of_one_queue_do_not_hold_up_another_queue(
    start_thread: Callable[..., ThreadedWorker],
    open_connection: Callable[..., psycopg.Connection],
    settings: dict[str, int] | None,
) -> None:
    """With a boost they are chosen in another statement than without."""
    if settings:
        QueueSettings.objects.create(queue_name="locked", **settings)
    make_jobs(500, ADD, queue_name="locked")
    make_jobs(10, ADD, queue_name="other")
    holder = open_connection(autocommit=False)
    holder.execute("SELECT FROM pgjobs_job_live WHERE queue_name = 'locked' FOR UPDATE")
    start_thread(concurrency=2)
    try:
        wait_until(lambda: count_jobs(queue_name="other", status="successful") == 10)
    finally:
        holder.rollback()
    wait_until(lambda: count_jobs(status="successful") == 510)
