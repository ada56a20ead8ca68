"""Cancels and repeats of a batch read the jobs of that batch, whatever the planner knows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from tests.factories import make_batch, make_jobs, make_worker
from tests.planner import KNOWN, forget_jobs, plan_like_settle, rows_read

pytestmark = pytest.mark.django_db

# So many that the indexes of waiting jobs have one level more than that of the ids.
OTHERS = 40_000
JOBS = 100
CALLS = {
    "cancel": "SELECT pgjobs_cancel_page_v1(ARRAY[%s], 1000)",
    "resume": "SELECT pgjobs_unask_jobs_v1(ARRAY[%s])",
    "find former": "SELECT pgjobs_find_former_v1(ARRAY[%s])",
    "run again": "SELECT pgjobs_run_again_v1(ARRAY[%s])",
}
FILL = """
INSERT INTO pgjobs_job (
    task_path, queue_name, concurrency_key, batch_id, source_id, status, finished_at
)
SELECT 'shop.tasks.send', 'queue', %s || 200000 - n, %s, n, status, finished_at
FROM generate_series(1, %s) AS n
CROSS JOIN (VALUES ('ready', NULL), ('successful', now())) AS kind (status, finished_at)
"""


@pytest.mark.slow
@pytest.mark.parametrize("key", ["account " + 86 * "x", None], ids=["long-keyed", "plain"])
@pytest.mark.parametrize("of_batch", [True, False], ids=["of-another-batch", "of-none"])
@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("call", CALLS)
def test_no_jobs_of_others_are_read(call: str, known: str, of_batch: bool, key: str | None) -> None:
    batch = make_batch(jobs=3 * JOBS)
    other = make_batch(jobs=OTHERS) if of_batch else None
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_batch SET cancel_requested_at = now() WHERE id = %s", [batch])
        cursor.execute(FILL, [key, other, OTHERS])
        make_jobs(JOBS, batch_id=batch, source_id=0)
        make_jobs(JOBS, batch_id=batch, source_id=0, status="running", worker_id=make_worker())
        make_jobs(JOBS, batch_id=batch, source_id=0, status="successful")
        forget_jobs(cursor, known)
        plan_like_settle(cursor)
        before = rows_of_jobs_read(cursor)
        cursor.execute(CALLS[call], [batch])
        read = rows_of_jobs_read(cursor) - before
    assert read < 20 * JOBS


def rows_of_jobs_read(cursor: Any) -> int:
    return rows_read(cursor, "pgjobs_job_live") + rows_read(cursor, "pgjobs_job_finished")
