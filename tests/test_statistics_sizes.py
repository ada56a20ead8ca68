"""Statistics against plain SQL over the rows, with few, many and very many jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from django_pgjobs.queries import numbers, statistics

# What is rolled back would stay in the tables, and make other tests slow: these are emptied.
pytestmark = pytest.mark.django_db(transaction=True)

# A third has not finished: most of it is ready, some runs, waits for its time, or is held.
LIVE = """
INSERT INTO pgjobs_job (task_path, queue_name, status, worker_id, claim, attempts, run_after, hold,
                        enqueued_at)
SELECT 'shop.tasks.push', 'queue-' || n %% 7, CASE WHEN n %% 50 = 0 THEN 'running' ELSE 'ready' END,
       CASE WHEN n %% 50 = 0 THEN 1 END, (n %% 50 = 0)::integer, (n %% 50 = 0)::integer,
       CASE WHEN n %% 10 = 1 THEN now() + interval '1 hour' END,
       CASE WHEN n %% 100 = 3 THEN 'dependencies' END, now() - n %% 3600 * interval '1 second'
FROM generate_series(1, %s::integer / 3) AS n
"""
# Two thirds ended within the last 20 days, half of them lately, but for the last minutes.
ENDED = """
INSERT INTO pgjobs_job (task_path, queue_name, status, finished_at, last_attempted_at)
SELECT 'shop.tasks.' || n %% 11, 'queue-' || n %% 7,
       CASE WHEN n %% 13 = 0 THEN 'failed' WHEN n %% 17 = 0 THEN 'cancelled' ELSE 'successful' END,
       moment, moment - n %% 5000 * interval '1 millisecond'
FROM generate_series(1, %s::integer / 3 * 2) AS n,
     LATERAL (
         SELECT now() - interval '5 minutes' - interval '1 minute'
                * CASE WHEN n %% 2 = 0 THEN n * 67::bigint %% 28000 ELSE n %% 400 END AS moment
     ) AS ended
"""
# What processes would have written of them, two for each minute.
PARTS = """
INSERT INTO pgjobs_statistic (
    begins_at, queue_name, task_path, successful, failed, cancelled, ran, enqueued, retried, lost,
    waited, waits, runs
)
SELECT date_trunc('minute', finished_at), queue_name, task_path,
       count(*) FILTER (WHERE status = 'successful'), count(*) FILTER (WHERE status = 'failed'),
       count(*) FILTER (WHERE status = 'cancelled'),
       sum(EXTRACT(EPOCH FROM finished_at - last_attempted_at)), count(*), count(*) * 2,
       count(*) * 3, count(*) * 0.25, ARRAY[0, count(*)], ARRAY[count(*), 0, 1]
FROM pgjobs_job_finished
GROUP BY date_trunc('minute', finished_at), queue_name, task_path, id % 2
"""
SIZES = """
SELECT queue_name, count(*) FILTER (WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL),
       count(*) FILTER (WHERE status = 'running'),
       count(*) FILTER (WHERE due_at IS NOT NULL AND hold IS NULL),
       count(*) FILTER (WHERE hold IS NOT NULL)
FROM pgjobs_job_live
GROUP BY ROLLUP (queue_name)
"""
SUMS = """
SELECT statistic.queue_name, sum(enqueued), sum(retried), sum(lost), sum(waited),
       round(sum(ran)::numeric, 3), sum(waits[2]), sum(runs[1]), sum(runs[3])
FROM pgjobs_statistic AS statistic
GROUP BY statistic.queue_name
ORDER BY statistic.queue_name
"""
BY_TIME = """
SELECT floor(EXTRACT(EPOCH FROM finished_at) / %s)::bigint, {name},
       count(*) FILTER (WHERE status = 'successful'), count(*) FILTER (WHERE status = 'failed'),
       count(*) FILTER (WHERE status = 'cancelled')
FROM pgjobs_job_finished
WHERE finished_at >= to_timestamp(
    floor(EXTRACT(EPOCH FROM statement_timestamp() - %s * interval '1 second') / %s) * %s
)
GROUP BY 1, 2
ORDER BY 1, 2
"""


@pytest.fixture
def cursor() -> Iterator[Any]:
    with transaction.atomic(), connection.cursor() as given:
        yield given


def check_sizes(cursor: Any) -> None:
    statistics.measure_queues(cursor)
    shown = {
        size.queue_name: (size.ready, size.running, size.scheduled, size.held)
        for size in numbers.list_sizes(cursor)
    }
    cursor.execute(SIZES)
    assert shown == {name: tuple(counts) for name, *counts in cursor.fetchall()}


def check_times(cursor: Any, seconds: int, bucket: int, name: str) -> None:
    found = numbers.list_statistics(
        cursor,
        seconds=seconds,
        bucket_seconds=bucket,
        by_queue=name == "queue_name",
        by_task=name == "task_path",
    )
    shown = [
        (n.bucket, getattr(n, name), n.successful, n.failed, n.cancelled)
        for n in found
        if getattr(n, name) is not None
    ]
    cursor.execute(BY_TIME.format(name=name), [bucket, seconds, bucket, bucket])
    rows = cursor.fetchall()
    # The first bucket may have ended between the two statements.
    first = max(shown[0][0], rows[0][0])
    assert [row for row in shown if row[0] > first] == [row for row in rows if row[0] > first]


def check_largest(cursor: Any, seconds: int, bucket: int, name: str) -> None:
    """Check the names with the most jobs and the rest: in the test there are more names."""
    found = numbers.list_largest(
        cursor, seconds=seconds, bucket_seconds=bucket, by_task=name == "task_path", max_names=3
    )
    cursor.execute(BY_TIME.format(name=name), [bucket, seconds, bucket, bucket])
    totals: dict[str, int] = {}
    for _, each, *ended in cursor.fetchall():
        totals[each] = totals.get(each, 0) + sum(ended)
    largest = sorted(totals, key=lambda each: (-totals[each], each))[:3]
    shown = {each: sum(by_bucket.values()) for each, by_bucket in found.counts.items()}
    rest = {None: sum(totals.values()) - sum(totals[each] for each in largest)}
    assert shown == rest | {each: totals[each] for each in largest}


@pytest.mark.parametrize(
    "jobs",
    [
        600,
        pytest.param(300_000, marks=pytest.mark.slow),
        pytest.param(3_000_000, marks=pytest.mark.slow),
    ],
)
def test_every_number_is_that_of_the_rows(cursor: Any, jobs: int) -> None:
    cursor.execute("SET LOCAL jit = off")
    cursor.execute(LIVE, [jobs])
    cursor.execute(ENDED, [jobs])
    cursor.execute(PARTS)
    cursor.execute("ANALYZE pgjobs_job, pgjobs_statistic")
    check_sizes(cursor)
    cursor.execute(SUMS)
    sums = cursor.fetchall()
    for step in statistics.STEPS:
        while statistics.roll_up(cursor, step):
            pass
    cursor.execute(SUMS)
    assert cursor.fetchall() == sums
    cursor.execute("SELECT DISTINCT period FROM pgjobs_statistic")
    assert {period for (period,) in cursor.fetchall()} == {"minute", "quarter", "hour", "day"}
    check_times(cursor, 3600, 60, "queue_name")
    check_times(cursor, 6 * 3600, 300, "task_path")
    check_times(cursor, 86400, 900, "task_path")
    check_times(cursor, 7 * 86400, 7200, "queue_name")
    check_times(cursor, 30 * 86400, 86400, "task_path")
    check_largest(cursor, 7 * 86400, 7200, "task_path")
    check_largest(cursor, 30 * 86400, 86400, "queue_name")
