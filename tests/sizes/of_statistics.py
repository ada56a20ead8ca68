"""What is read of the statistics, by time, against the rows of the jobs."""

from __future__ import annotations

from typing import Any

from django_pgjobs.queries import numbers, statistics

SIZES = """
SELECT queue_name, count(*) FILTER (WHERE status = 'ready' AND due_at IS NULL AND hold IS NULL),
       count(*) FILTER (WHERE status = 'running'),
       count(*) FILTER (WHERE due_at IS NOT NULL AND hold IS NULL AND attempts = 0),
       count(*) FILTER (WHERE due_at IS NOT NULL AND hold IS NULL AND attempts > 0),
       count(*) FILTER (WHERE hold IS NOT NULL)
FROM pgjobs_job_live
GROUP BY ROLLUP (queue_name)
"""
TOTAL = """
SELECT statistic.queue_name, sum(enqueued), sum(retried), sum(lost), sum(waited),
       round(sum(ran)::numeric, 4), sum(waits[2]), sum(runs[1]), sum(runs[3])
FROM pgjobs_statistic AS statistic
GROUP BY statistic.queue_name
ORDER BY statistic.queue_name
"""
SUMS = """
SELECT statistic.{name}, sum(enqueued), sum(retried), sum(lost), sum(waited),
       round(sum(ran)::numeric, 4), sum(waits[2]), sum(runs[1]), sum(runs[3])
FROM {table} AS statistic
WHERE period <> 'part' AND {name} IS NOT NULL
GROUP BY statistic.{name}
ORDER BY statistic.{name}
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


def check(cursor: Any) -> None:
    """Check what is counted, by time and name, before and after it is added up to periods."""
    check_sizes(cursor)
    cursor.execute(TOTAL)
    total = cursor.fetchall()
    for roll_up in (statistics.roll_up, statistics.roll_up_sums):
        for step in statistics.STEPS:
            while roll_up(cursor, step):
                pass
    cursor.execute(TOTAL)
    assert cursor.fetchall() == total
    for table in ("pgjobs_statistic", "pgjobs_statistic_sum"):
        cursor.execute(f"SELECT DISTINCT period FROM {table}")
        # The newest ones may be too new.
        periods = {period for (period,) in cursor.fetchall()} - {"part"}
        assert periods == {step.into for step in statistics.STEPS}
    for name in ("queue_name", "task_path"):
        cursor.execute(SUMS.format(table="pgjobs_statistic", name=name))
        sums = cursor.fetchall()
        cursor.execute(SUMS.format(table="pgjobs_statistic_sum", name=name))
        assert cursor.fetchall() == sums
    check_times(cursor, 3600, 60, "queue_name")
    check_times(cursor, 6 * 3600, 300, "task_path")
    check_times(cursor, 86400, 900, "task_path")
    check_times(cursor, 7 * 86400, 14400, "queue_name")
    check_times(cursor, 30 * 86400, 86400, "task_path")
    check_sums(cursor, 7 * 86400, 14400)
    check_largest(cursor, 7 * 86400, 14400, "task_path")
    check_largest(cursor, 30 * 86400, 86400, "queue_name")


def check_sizes(cursor: Any) -> None:
    shown = {
        size.queue_name: (size.ready, size.running, size.scheduled, size.retrying, size.blocked)
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


def check_sums(cursor: Any, seconds: int, bucket: int) -> None:
    """Check the sums by time and by queue against those of both, which check_times checks."""
    sums = numbers.sum_statistics(cursor, seconds=seconds, bucket_seconds=bucket)
    found = numbers.list_statistics(cursor, seconds=seconds, bucket_seconds=bucket, by_queue=True)
    if found[-1].bucket != sums.by_time[-1].bucket:  # one has ended between the two statements
        check_sums(cursor, seconds, bucket)
        return
    by_time: dict[int, list[int]] = {}
    by_queue: dict[str, list[int]] = {}
    for each in found:
        for counts in (
            by_time.setdefault(each.bucket, [0, 0, 0]),
            by_queue.setdefault(each.queue_name or "", [0, 0, 0]),
        ):
            ended = (each.successful, each.failed, each.cancelled)
            counts[:] = [a + b for a, b in zip(counts, ended, strict=True)]
    assert by_queue.pop("") == [0, 0, 0]
    assert {name: list(ended) for name, ended in sums.by_queue.items()} == by_queue
    assert {n.bucket: [n.successful, n.failed, n.cancelled] for n in sums.by_time} == by_time


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
