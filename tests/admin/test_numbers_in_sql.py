"""Every number of the pages is a query on the tables, as docs/admin-overview.md prints it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs import pause
from tests.admin.overview_support import ago, numbers
from tests.factories import make_job, make_jobs, make_running_job, make_worker
from tests.test_docs import CODE_BLOCK, read

pytestmark = pytest.mark.django_db


def rows_of(title: str) -> list[tuple[Any, ...]]:
    """Run the first query below the comment that begins with *title* on the page."""
    section = read("admin-overview.md").partition("\n## The same in SQL\n")[2]
    found = CODE_BLOCK.search(section)
    assert found and found[1] == "sql"
    queries = re.findall(r"^-- (.+)\n([^;]+);", found[2], re.MULTILINE)
    [query] = [text for comment, text in queries if comment.startswith(title)]
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


@pytest.fixture
def installation() -> None:
    """Some jobs of every kind, in two queues, held by two workers."""
    later = sql.SQL("now() + interval '1 hour'")
    first, second = (make_worker(name, slots=4) for name in ("a:1", "b:2"))
    make_worker("gone:3", lease_seconds=-60)
    make_jobs(4)
    make_running_job(first, concurrency_key="shop:1")
    make_running_job(first, concurrency_key="shop:1", queue_name="mail")
    make_running_job(second, concurrency_key="shop:2")
    make_jobs(2, run_after=later, due_at=later)
    make_jobs(3, due_at=later, attempts=2, queue_name="mail")
    make_jobs(5, hold="dependencies", waits_for=1)
    errors = [{"exception_class": "builtins.OSError", "message": "refused"}]
    make_jobs(6, status="failed", finished_at=ago(60), errors=errors)
    make_jobs(7, status="failed", finished_at=ago(4_000), errors=errors)
    make_jobs(8, status="successful", finished_at=ago(60), queue_name="mail")
    pause(queue="mail", by="anna", reason="PDF bug")


def test_the_numbers_of_the_overview_are_queries(installation: None) -> None:
    """S5.5: all state is in SQL."""
    shown = numbers()
    tiles = {tile.key: tile.number for tile in shown["tiles"]}
    keys = ("ready", "running", "retrying", "scheduled", "blocked")
    assert rows_of("Overview, at the top") == [tuple(tiles[key] for key in keys)]
    [(failed, finished_a_minute)] = rows_of("Overview: failed in")
    assert (failed, float(finished_a_minute)) == (tiles["failed"], shown["finished_a_minute"])
    queues = [(line.name, line.ready, line.running, line.finished_hour) for line in shown["queues"]]
    assert [row[:4] for row in rows_of("Overview, per queue")] == queues
    shares = [
        100 * failed / finished if finished else None
        for *_, finished, failed in rows_of("Overview, per queue")
    ]
    assert shares == [line.failed_percent for line in shown["queues"]]


def test_the_numbers_of_failures_are_queries(installation: None) -> None:
    """S5.5, S1.2."""
    groups = [
        (each.row.task_path, each.row.error_class, each.row.jobs) for each in numbers()["groups"]
    ]
    assert groups == [("tests.tasks.add", "builtins.OSError", 13)]
    assert rows_of("Overview and Failures") == groups


def test_the_numbers_of_workers_queues_and_limits_are_queries(installation: None) -> None:
    """S5.5."""
    shown = numbers()
    workers = [(each.name, each.slots, each.running) for each, _ in shown["workers"]]
    assert sorted(workers) == rows_of("Workers") == [("a:1", 4, 2), ("b:2", 4, 1)]
    paused = [
        (each.name, each.paused_by, each.reason) for each in shown["queues"] if each.is_paused
    ]
    assert [row[1:] for row in rows_of("Queues")] == paused == [("mail", "anna", "PDF bug")]
    keys = [(row.first, row.running) for row in shown["keys"] if row.first and row.running]
    assert rows_of("Limits") == [("shop:1", 2), ("shop:2", 1)]
    assert set(keys) <= set(rows_of("Limits"))


def test_what_the_page_system_reads_is_a_query(installation: None) -> None:
    """S5.5, S3.9: what there is to watch."""
    make_job()
    assert {row[0] for row in rows_of("System")} >= {"pgjobs_job_live", "pgjobs_job_finished"}
