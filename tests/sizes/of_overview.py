"""The Overview, its chart and the page Failures, against the queries of the docs and other ones."""

from __future__ import annotations

from typing import Any

from django.test import Client
from django.urls import reverse

from django_pgjobs.admin.overview.chart import RANGES, SPLITS
from django_pgjobs.admin.overview.failures import MAX_JOBS_ASKED
from django_pgjobs.control.failures import MAX_GROUPS, MAX_JOBS
from tests.admin import test_numbers_in_sql as docs
from tests.admin.overview_support import numbers
from tests.sizes.compared import cells, plain, query, steady

OVERVIEW = ("Overview, at the top", "Overview: failed in", "Overview and Queues, per queue")
CHART = "Overview, the chart of 24 hours"
IN_RANGE = """
SELECT count(*) FROM pgjobs_job_finished
WHERE finished_at >= to_timestamp(
    (floor(date_part('epoch', now()) / %s) - %s + 1) * %s
)
"""
ENQUEUED_A_MINUTE = """
SELECT sum(statistic.enqueued) / 5.0
FROM pgjobs_statistic AS statistic
CROSS JOIN (
    SELECT date_trunc('minute', measured_at) AS until FROM pgjobs_queue_sample
    WHERE queue_name IS NULL ORDER BY measured_at DESC OFFSET 1 LIMIT 1
) AS counted
WHERE statistic.begins_at >= counted.until - interval '5 minutes'
    AND statistic.begins_at < counted.until
"""
# By construction each class has one message of each task. An error that is not there is "".
FAILURES = """
WITH failed AS (
    SELECT
        task_path, COALESCE(errors -> -1 ->> 'exception_class', '') AS name, finished_at,
        floor(EXTRACT(EPOCH FROM now() - finished_at) / 21600) AS period
    FROM pgjobs_job_finished WHERE status = 'failed' ORDER BY finished_at DESC LIMIT %s
),
by_period AS (SELECT task_path, name, period, count(*) AS jobs FROM failed GROUP BY 1, 2, 3)
SELECT
    task_path, name, count(*),
    count(*) FILTER (WHERE finished_at > now() - interval '1 hour'),
    count(*) FILTER (WHERE finished_at > now() - interval '1 day'),
    count(*) FILTER (WHERE finished_at > now() - interval '7 days'),
    min(finished_at), max(finished_at),
    COALESCE((
        SELECT max(each.jobs) FROM by_period AS each
        WHERE each.period < 28
            AND (each.task_path, each.name) = (failed.task_path, failed.name)
    ), 0)
FROM failed GROUP BY task_path, name
"""


def check(client: Client) -> None:
    """Check both pages."""
    check_overview()
    check_chart()
    check_failures(client, MAX_JOBS, "")
    check_failures(client, MAX_JOBS_ASKED, "?jobs=all")


def check_overview() -> None:
    wanted, shown = steady(lambda: [docs.rows_of(title) for title in OVERVIEW], numbers)
    tiles = {tile.key: tile.number for tile in shown["tiles"]}
    [sizes], [(failed, finished_a_minute)], queues = wanted
    assert sizes == tuple(
        tiles[key] for key in ("ready", "running", "retrying", "scheduled", "blocked")
    )
    assert (failed, float(finished_a_minute)) == (tiles["failed"], tiles["finished"])
    assert queues == [
        (one.name, one.size.ready, one.size.blocked, one.size.running, one.finished, one.failed)
        for one in shown["queues"]
    ]
    [(enqueued,)], shown = steady(lambda: query(ENQUEUED_A_MINUTE), numbers)
    assert [tile.number for tile in shown["tiles"] if tile.key == "enqueued"] == [float(enqueued)]
    workers = sorted((each.name, each.slots, each.running) for each, _ in shown["workers"])
    assert workers == docs.rows_of("Workers")


def check_chart() -> None:
    for by in SPLITS:
        wanted, shown = steady(
            lambda: docs.by_name(by),  # noqa: B023 (called at once)
            lambda: numbers("24h", by)["chart"],  # noqa: B023
        )
        docs.compare_chart(wanted, shown)
    for key, chosen in RANGES.items():
        length, most = chosen.bucket_seconds, chosen.buckets
        [(jobs,)], shown = steady(
            lambda: query(IN_RANGE, length, most, length),  # noqa: B023
            lambda: numbers(key)["chart"].jobs,  # noqa: B023
        )
        assert (key, shown) == (key, jobs)


def check_failures(client: Client, most: int, address: str) -> None:
    def read() -> Any:
        return client.get(reverse("admin:pgjobs_job_failures") + address)

    wanted, response = steady(lambda: sorted(query(FAILURES, most)), read)
    text = response.content.decode()
    listed = [group["group"].row for group in response.context["groups"]]
    by_name = {row[:2]: row[2:] for row in wanted}
    assert len(listed) == min(len(wanted), MAX_GROUPS)
    sizes = sorted((row[2] for row in wanted), reverse=True)[:MAX_GROUPS]
    assert [row.jobs for row in listed] == sizes
    said = [each[1:5] for each in cells(text) if len(each) == 6][1:]
    for row, (shown, group) in zip(
        listed, zip(said, response.context["groups"], strict=True), strict=True
    ):
        jobs, hour, day, week, first, last, in_a_period = by_name[row.task_path, row.error_class]
        assert shown == [f"{number:,}" for number in (jobs, hour, day, week)]
        assert (row.first_at, row.last_at) == (first, last)
        assert group["group"].spark.largest == in_a_period
    looked_at = sum(row[2] for row in wanted)
    if looked_at == most:
        assert f"The newest {most:,} failed jobs by what went wrong" in plain(text)
    else:
        assert f"{looked_at:,} failed jobs by what went wrong" in plain(text)
    left_out = len(wanted) - len(listed)
    assert (f"{left_out} more groups are not shown." in text) is (left_out > 1)
