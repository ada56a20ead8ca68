"""What the Overview costs: statements, bytes, and rows that are read."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from django_pgjobs.admin.overview.chart import RANGES, SPLITS
from django_pgjobs.admin.overview.live import forget
from django_pgjobs.queries.cursor import statement
from django_pgjobs.values.bounds import MAX_QUEUE_NAME_BYTES, MAX_TASK_PATH_BYTES
from django_pgjobs.warnings.rules import LEAST_FAILED
from tests.admin.overview_support import LOCAL_CACHE, read, record
from tests.admin.test_plans import CONTROL, MAX_QUERIES
from tests.factories import ago, make_job, make_jobs, make_running_job

pytestmark = [pytest.mark.django_db, pytest.mark.slow]


def fill_page(queue: str, task: str) -> None:
    """Make more of everything than the page shows; names begin with *queue* and *task*."""
    for number in range(60):
        name = f"{queue}{number:02}"
        make_job(f"{task}{number % 12:02}", queue_name=name)
        make_job(queue_name=name, due_at=ago(-99), attempts=number % 2)
        make_running_job(queue_name=name)
        for hours in range(24):
            path = f"{task}{(number + hours) % 12:02}"
            end = ago(hours * 3_600 + number * 60)
            make_job(path, queue_name=name, status="successful", finished_at=end)
        error = {"exception_class": "a.Boom", "message": f"no {chr(97 + number % 26)} {'x ' * 90}"}
        make_job(status="failed", finished_at=ago(number * 60), errors=[error])
    record()
    cache.clear()


@override_settings(CACHES=LOCAL_CACHE)
@pytest.mark.parametrize("name", ["admin_client", "viewer"])
def test_the_page_has_few_bytes(name: str, request: pytest.FixtureRequest) -> None:
    client = request.getfixturevalue(name)
    fill_page("queue-", "some.path.of.a.task_")
    text = read(client, range="24h", by="task")
    # How the jobs fall into quarters of an hour makes a few kB more or less.
    assert len(text.encode()) < 110_000


@override_settings(CACHES=LOCAL_CACHE)
@pytest.mark.parametrize("name", ["admin_client", "viewer"])
def test_the_first_page_after_a_while_asks_no_more_than_any_other(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Nothing is kept, and all is judged by what is usual: jobs that fail, and that run for long.

    A page may ask twelve times. Here sessions are in no table, but what held in the transaction
    of the test is set again.
    """
    client = request.getfixturevalue(name)
    fill_page("queue-", "some.path.of.a.task_")
    make_running_job(last_attempted_at=ago(5_000))
    make_jobs(LEAST_FAILED, status="failed", finished_at=ago(60))
    for chosen, split in itertools.product(RANGES, SPLITS):
        cache.clear()
        asked = statements_of(client, chosen, split)
        assert len(asked) <= MAX_QUERIES, (chosen, split, asked)
        forget(f"overview:{chosen}:{split}")
        again = statements_of(client, chosen, split)
        assert len(again) < len(asked), (chosen, split, again)


def statements_of(client: Client, chosen: str, split: str) -> list[str]:
    """Return how the statements of a page begin, without what only ends transactions."""
    with CaptureQueriesContext(connection) as queries:
        read(client, range=chosen, by=split)
    return [query["sql"][:200] for query in queries if not query["sql"].startswith(CONTROL)]


def test_the_longest_names_leave_room_in_a_page(admin_client: Client) -> None:
    fill_page("q" * (MAX_QUEUE_NAME_BYTES - 2), "t" * (MAX_TASK_PATH_BYTES - 2))
    for by in ("queue", "task"):
        # 171 and 172 kB were seen by task, as the jobs fell into quarters of an hour.
        assert len(read(admin_client, range="24h", by=by).encode()) < 182_000


STATEMENTS = {
    "list_queues": {
        "max_jobs": 100, "max_queues": 9, "max_sampled": 9, "max_lanes": 9, "max_next": 9,
        "also_names": [], "queue_name": None,
    },
    "list_statistics": {
        "max_jobs": 100, "bucket_seconds": 60, "seconds": 3600, "by_queue": True, "by_task": False,
        "closing": 15.0,
    },
    "sum_statistics": {
        "max_jobs": 100, "bucket_seconds": 60, "seconds": 3600, "by_task": False, "closing": 15.0,
        "class_seconds": 3600, "task_paths": None,
    },
    "list_largest": {
        "max_jobs": 100, "bucket_seconds": 60, "seconds": 3600, "by_task": True, "max_names": 9,
        "others": "(others)", "closing": 15.0,
    },
    "list_failures": {
        "max_jobs": 100, "max_groups": 9, "seconds": 1e6, "newest_first": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_reads_more_jobs_than_it_may(name: str) -> None:
    """What EXPLAIN counted, on tables that are larger than the bound."""
    for status in ("failed", "successful", "cancelled", "ready"):
        make_jobs(5_000, status=status, finished_at=ago(60), errors=[{"message": "x"}])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE pgjobs_job")
        # Of a table as small as this, what tests before left dead decides between the two.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement(name)}", STATEMENTS[name])
        [(plan,)] = cursor.fetchall()
    plan = json.loads(plan) if isinstance(plan, str) else plan
    read = {
        node["Alias"]: (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        * node["Actual Loops"]
        for node in nodes(plan[0]["Plan"])
        if node.get("Relation Name", "").startswith("pgjobs_job")
    }
    assert read
    assert max(read.values()) <= 1_000
    assert sum(read.values()) <= 1_300


def nodes(node: dict[str, Any]) -> Any:
    """Yield a node of a plan and all below it."""
    yield node
    for below in node.get("Plans", ()):
        yield from nodes(below)
