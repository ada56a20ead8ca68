"""What pages say of a queue: its numbers, its last hours, and whether anybody serves it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from psycopg import sql

from django_pgjobs.admin import pages
from django_pgjobs.admin.overview import page as overview
from django_pgjobs.admin.queues import drawing
from django_pgjobs.control.numbers import queue_lines, read_hour
from django_pgjobs.metrics import of_installation
from django_pgjobs.metrics.of_installation import describe_installation
from django_pgjobs.models import QueueSample
from django_pgjobs.queries import numbers, queue_pages, statistics
from django_pgjobs.queries.cursor import statement
from tests.admin.test_overview_cost import nodes
from tests.admin.test_queues import LATER, read, rows
from tests.factories import make_job, make_jobs, make_worker
from tests.helpers import some_always
from tests.metrics.parsing import read as parse
from tests.metrics.parsing import value_of

pytestmark = pytest.mark.django_db

MANY_QUEUES = """
INSERT INTO pgjobs_job (task_path, queue_name)
SELECT 'shop.tasks.send', 'queue ' || 100000 + n FROM generate_series(0, %s - 1) AS n
"""
# What a VACUUM tells the planner while the transaction that fills the tables is open.
NOTHING_THERE = """
UPDATE pg_catalog.pg_class SET reltuples = 0, relpages = 1000
WHERE oid IN ('pgjobs_job_live'::regclass, 'pgjobs_queue_sample'::regclass)
"""


def test_of_many_jobs_each_queue_has_its_sample_until_there_are_too_many_queues(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "FEW", 5)
    monkeypatch.setattr(statistics, "MAX_QUEUES", 2)
    monkeypatch.setattr(queue_pages, "MAX_SAMPLED", 2)
    for name, count in (("few", 1), ("mail", 20), ("more", 5)):
        make_jobs(count, queue_name=name)
    oldest = {name: row.size and (row.size.ready, row.size.is_cut) for name, row in rows().items()}
    assert oldest == {"few": (1, True), "mail": (5, True), "more": None}
    with connection.cursor() as cursor:
        statistics.measure_queues(cursor)
    known = {name: row.size and row.size.ready for name, row in rows().items()}
    assert known == {"few": None, "mail": 20, "more": 5}
    QueueSample.objects.filter(queue_name="more").delete()
    make_jobs(1, queue_name="new")
    assert rows()["new"].size.ready == 0  # type: ignore[union-attr]
    assert "tab=ready&amp;queue=mail" in read(admin_client)


@pytest.mark.slow
@pytest.mark.parametrize("is_sampled", [False, True])
def test_of_very_many_queues_the_first_ones_are_shown(
    admin_client: Client, is_sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine reads what was just written slowly.
    monkeypatch.setattr(pages, "PAGE_SECONDS", 60.0)
    with connection.cursor() as cursor:
        cursor.execute(MANY_QUEUES, [100_000])
        if is_sampled:
            statistics.measure_queues(cursor)
    text = read(admin_client)
    assert "queue 100000" in text and "queue 199999" not in text
    assert "There are more; the first 60 are shown." in text
    metrics = parse(describe_installation())
    assert value_of(metrics, "pgjobs_part_read", part="queues") == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_sampled", [False, True])
def test_of_very_many_queues_no_job_is_read_again_however_few_the_planner_knows_of(
    admin_client: Client, is_sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_SECONDS", 60.0)
    monkeypatch.setattr(overview, "OVERVIEW_SECONDS", 60.0)
    monkeypatch.setattr(of_installation, "ASKED_SECONDS", 60.0)
    monkeypatch.setattr(numbers, "FEW", 1_000)
    monkeypatch.setattr(queue_pages, "MAX_LANES", 50)
    with connection.cursor() as cursor:
        # So many that the index of the ready jobs has one level more than that of the ids.
        cursor.execute("TRUNCATE pgjobs_job, pgjobs_queue_sample CASCADE")
        cursor.execute(MANY_QUEUES, [40_000])
        if is_sampled:
            statistics.measure_queues(cursor)
        cursor.execute(NOTHING_THERE)
    plans: list[Any] = []

    def explain(execute: Any, text: str, params: Any, many: bool, context: Any) -> Any:
        if text == statement("list_queues"):
            cursor = context["cursor"]
            execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", params, many, context)
            [(plan,)] = cursor.fetchall()
            plans.append(json.loads(plan) if isinstance(plan, str) else plan)
        return execute(text, params, many, context)

    with connection.execute_wrapper(explain):
        read(admin_client)
        read(admin_client, "admin:pgjobs_queue", name="queue 100000")
        admin_client.get(reverse("admin:app_list", args=["pgjobs"]))
        describe_installation()
    assert len(plans) == 4
    for [plan] in plans:
        rows = [
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            for node in nodes(plan["Plan"])
            if node.get("Relation Name") == "pgjobs_job_live"
        ]
        assert sum(rows) <= 3_000


def test_the_share_of_failures_is_that_of_the_jobs_that_ran() -> None:
    for status, count in (("failed", 10), ("successful", 30), ("cancelled", 80)):
        make_jobs(count, status=status, queue_name="mail", finished_at=sql.SQL("now()"))
    with connection.cursor() as cursor:
        hour = read_hour(cursor)
        found = queue_pages.list_queues(cursor, also_names=["mail"], queue_name="mail").rows
    [line] = queue_lines(found, hour)
    assert (line.finished, line.failed, line.failed_percent) == (120, 10, 25)


def test_it_is_told_what_the_share_of_failures_is_of(admin_client: Client) -> None:
    make_job(queue_name="mail", status="failed", finished_at=sql.SQL("now()"))
    for text in (read(admin_client), read(admin_client, "admin:pgjobs_queue", name="mail")):
        assert text.count('title="of the jobs that succeeded or failed, without those') == 1


def test_workers_of_other_queues_hide_none_that_serves_it(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "MAX_WORKERS", 2)
    for number in range(3):
        make_worker(f"other:{number}", queues=["other"])
    for number in range(3):
        make_worker(f"server:{number}", queues=["mail"])
    make_job(queue_name="mail")
    text = admin_client.get(reverse("admin:pgjobs_queue"), {"name": "mail"}).content.decode()
    assert [f"server:{number}" in text for number in range(3)] == [True, True, False]
    assert "other:" not in text


def test_two_sums_at_one_moment_are_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """By somebody's INSERT, or two leaders at once."""
    monkeypatch.setattr(numbers, "FEW", 5)
    make_jobs(6, queue_name="mail")
    moment = timezone.now()
    for _ in range(2):
        QueueSample.objects.create(measured_at=moment, ready=6)
        QueueSample.objects.create(measured_at=moment, ready=6, queue_name="mail")
    with connection.cursor() as cursor:
        assert [row.name for row in queue_pages.list_queues(cursor).rows] == ["mail"]
    found = value_of(
        parse(describe_installation()), "pgjobs_queue_jobs", queue="mail", state="ready"
    )
    assert found == 6


@pytest.mark.parametrize(
    ("worker", "job", "is_unserved"),
    some_always(
        [
            ({}, {}, False),
            ({"queues": ["mail"]}, {}, False),
            ({"queues": ["other"]}, {}, True),
            ({"excluded_queues": ["mail"]}, {}, True),
            ({"backends": ["other"]}, {}, True),
            ({"backends": ["other"]}, {"backend": "other"}, False),
            ({"lease_seconds": -1}, {}, True),
            ({"quiet_requested_at": sql.SQL("now()")}, {}, True),
            ({"stop_requested_at": sql.SQL("now()")}, {}, True),
            ({"queues": ["other"]}, {"concurrency_key": "shop:1"}, True),
            ({"queues": ["other"]}, {"due_at": LATER}, False),
            ({"queues": ["other"]}, {"hold": "dependencies", "waits_for": 1}, False),
        ]
    ),
    ids=str,
)
def test_every_page_says_the_same_of_who_serves_a_queue(
    admin_client: Client, worker: dict[str, Any], job: dict[str, Any], is_unserved: bool
) -> None:
    make_worker(**worker)
    make_job(queue_name="mail", **job)
    assert rows()["mail"].is_unserved is is_unserved
    overview = admin_client.get(reverse("admin:app_list", args=["pgjobs"])).content.decode()
    page = read(admin_client, "admin:pgjobs_queue", name="mail")
    for text, words in (
        (overview, "No worker</span>"),
        (read(admin_client), "No worker</span>"),
        (page, "No worker</span>"),
        (page, "Jobs wait in this queue and no live worker serves it."),
    ):
        assert (words in text) is is_unserved


def test_a_queue_shows_its_last_hours(admin_client: Client) -> None:
    make_jobs(7, queue_name="mail")
    make_jobs(3, queue_name="mail", status="successful", finished_at=sql.SQL("now()"))
    make_job(queue_name="mail", status="failed", finished_at=sql.SQL("now()"))
    make_job(queue_name="past", status="failed", finished_at=sql.SQL("now()"))
    with connection.cursor() as cursor:
        statistics.measure_queues(cursor)
    for text in (read(admin_client), read(admin_client, "admin:pgjobs_queue", name="mail")):
        assert 'aria-label="Ready jobs in the last 3 hours: at most 7"' in text
        assert re.search(r"tab=all&amp;queue=mail&amp;finished_at[^>]*>4</a>", text)
        assert "25 %" in text
    assert "queue=past&amp;finished_at" in read(admin_client)
