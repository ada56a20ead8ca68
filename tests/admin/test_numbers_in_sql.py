"""Every number of the pages is a query on the tables, as docs/numbers.sql has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from psycopg import sql

from django_pgjobs import pause
from django_pgjobs.admin.overview.chart import MAX_NAMES, SPLITS, Chart
from django_pgjobs.queries import numbers as queries
from django_pgjobs.queries.limit_pages import list_concurrency_keys
from django_pgjobs.queries.statistics import measure_queues
from django_pgjobs.status import JobStatus
from tests.admin.overview_support import numbers, record
from tests.factories import ago, make_job, make_jobs, make_running_job, make_worker
from tests.test_docs import read

pytestmark = pytest.mark.django_db


def rows_of(title: str) -> list[tuple[Any, ...]]:
    """Run the first query below the comment that begins with *title*."""
    queries = re.findall(r"^-- (.+)\n([^;]+);", read("numbers.sql"), re.MULTILINE)
    [query] = [text for comment, text in queries if comment.startswith(title)]
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


@pytest.fixture(params=["tens", "hundreds"])
def installation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of every kind, in two queues, held by two workers; many are told by the statistics."""
    times = 1
    if request.param == "hundreds":
        times = 20
        monkeypatch.setattr(queries, "FEW", 30)
    later = sql.SQL("now() + interval '1 hour'")
    first, second = (make_worker(name, slots=4) for name in ("a:1", "b:2"))
    make_worker("gone:3", lease_seconds=-60)
    make_jobs(4 * times)
    make_running_job(first, concurrency_key="shop:1")
    make_running_job(first, concurrency_key="shop:1", queue_name="mail")
    make_running_job(second, concurrency_key="shop:2")
    make_jobs(2 * times, run_after=later, due_at=later)
    make_jobs(3 * times, due_at=later, attempts=2, queue_name="mail")
    make_jobs(5 * times, hold="dependencies", waits_for=1)
    errors = [{"exception_class": "builtins.OSError", "message": "refused"}]
    make_jobs(6, status="failed", finished_at=ago(150), errors=errors)
    make_jobs(7, status="failed", finished_at=ago(4_000), errors=errors)
    make_jobs(8 * times, status="successful", finished_at=ago(150), queue_name="mail")
    make_jobs(2 * times, "a.b", status="cancelled", finished_at=ago(50_000), queue_name="fax")
    pause(queue="mail", by="anna", reason="PDF bug")
    with connection.cursor() as cursor:
        measure_queues(cursor)
    record()


def test_the_numbers_of_the_overview_are_queries(installation: None) -> None:
    """S5.5: all state is in SQL."""
    shown = numbers()
    tiles = {tile.key: tile.number for tile in shown["tiles"]}
    keys = ("ready", "running", "retrying", "scheduled", "blocked")
    assert rows_of("Overview, at the top") == [tuple(tiles[key] for key in keys)]
    [(failed, finished_a_minute)] = rows_of("Overview: failed in")
    assert (failed, float(finished_a_minute)) == (tiles["failed"], tiles["finished"])
    queues = [
        (one.name, one.size.ready, one.size.blocked, one.size.running, one.finished, one.failed)
        for one in shown["queues"]
    ]
    assert rows_of("Overview and Queues, per queue") == queues


@pytest.mark.parametrize("by", SPLITS)
def test_the_chart_is_a_query(installation: None, by: str) -> None:
    """S5.5."""
    compare_chart(by_name(by), numbers("24h", by)["chart"])


def by_name(by: str) -> dict[str, int]:
    """Return how many jobs the query of the chart finds of each outcome, queue or task."""
    wanted: dict[str, int] = {}
    for status, queue_name, task_path, jobs in rows_of("Overview, the chart of 24 hours"):
        name = {"outcome": JobStatus(status).label, "queue": queue_name, "task": task_path}[by]
        wanted[name] = wanted.get(name, 0) + jobs
    return wanted


def compare_chart(wanted: Mapping[str, int], chart: Chart) -> None:
    """Check that a chart shows these jobs, those of some names together."""
    named = sorted(wanted, key=lambda name: (-wanted[name], name))[:MAX_NAMES]
    others = {"others": sum(wanted.values()) - sum(wanted[name] for name in named)}
    shown = {each.label: each.total for each in chart.legend if each.total}
    assert shown == {name: wanted[name] for name in named} | {k: v for k, v in others.items() if v}
    assert chart.jobs == sum(wanted.values()) == sum(bar.jobs for bar in chart.bars)


@pytest.mark.slow
def test_the_page_queues_shows_the_same_and_leads_to_the_jobs(
    installation: None, admin_client: Client
) -> None:
    """Each number is a link to a list of as many jobs."""
    text = admin_client.get(reverse("admin:pgjobs_queuesettings_changelist")).content.decode()
    jobs_url = reverse("admin:pgjobs_job_changelist")
    links = re.findall(rf'<a href="{jobs_url}\?([^"]*)">([\d,]+)</a>', text)
    assert len(links) == 8
    for query, number in links:
        response = admin_client.get(f"{jobs_url}?{unescape(query)}&per=100")
        listed = len(response.context["cl"].rows.jobs)
        assert listed == min(int(number.replace(",", "")), 100), query


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
        (each.name, each.row.paused_by, each.row.reason)
        for each in shown["queues"]
        if each.row.paused_at
    ]
    assert [row[1:] for row in rows_of("Queues")] == paused == [("mail", "anna", "PDF bug")]
    with connection.cursor() as cursor:
        keys = [(row.key, row.running) for row in list_concurrency_keys(cursor)]
    assert rows_of("Limits") == keys == [("shop:1", 2), ("shop:2", 1)]


def test_what_the_page_system_reads_is_a_query(installation: None) -> None:
    """S5.5, S3.9: what there is to watch."""
    make_job()
    assert {row[0] for row in rows_of("System")} >= {"pgjobs_job_live", "pgjobs_job_finished"}
