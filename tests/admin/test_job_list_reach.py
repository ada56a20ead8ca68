"""How far the list of jobs looks for what no index finds, and that nothing reads more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from psycopg import sql

from django_pgjobs.admin.job_list import changelist, tabs
from django_pgjobs.admin.job_list.search import Reach
from django_pgjobs.models import Job
from tests.admin.lists import LATER, NOW, ids_in, link, listed
from tests.factories import make_job, make_jobs, make_running_job

pytestmark = pytest.mark.django_db


@pytest.fixture
def short_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list looks through ten jobs at a time."""
    monkeypatch.setattr(changelist, "LOOK_THROUGH", {Reach.PLAIN: 10, Reach.SLOW: 5})
    monkeypatch.setattr(changelist, "LOOK_THROUGH_RARE", {Reach.PLAIN: 10, Reach.SLOW: 5})
    monkeypatch.setattr(tabs, "MAX_READ", 10)


@pytest.mark.slow
@pytest.mark.parametrize("tab", ["all", "failed", "ready", "scheduled", "blocked"])
@pytest.mark.usefixtures("short_sight")
def test_what_no_index_finds_is_looked_for_step_by_step(admin_client: Client, tab: str) -> None:
    kinds: dict[str, dict[str, Any]] = {
        "failed": {"status": "failed", "finished_at": NOW},
        "scheduled": {"run_after": LATER},
        "blocked": {"hold": "dependencies", "waits_for": 1},
    }
    kind = kinds.get(tab, {})
    wanted = []
    for _number in range(4):
        wanted.append(make_job(queue_name="wanted", **kind))
        if tab == "failed":
            kind = {**kind, "finished_at": sql.SQL("clock_timestamp()")}
        make_jobs(7, **kind)
    pages = [listed(admin_client, tab=tab, queue="wanted")]
    assert "10 jobs were looked through" in pages[0]
    while query := link(pages[-1], "next"):
        pages.append(listed(admin_client, **query))
    found = [job_id for page in pages for job_id in ids_in(page)]
    assert found == wanted[::-1]
    assert 3 <= len(pages) <= 5
    assert "jobs were looked through" not in pages[-1]
    # And back: the same jobs, from the other side.
    while query := link(pages[-1], "prev"):
        pages.append(listed(admin_client, **query))
    assert ids_in(pages[-1])[0] == wanted[-1]


@pytest.mark.usefixtures("short_sight")
def test_a_page_that_fills_itself_says_nothing_of_how_far_it_looked(admin_client: Client) -> None:
    make_jobs(120, queue_name="wanted")
    changelist.LOOK_THROUGH[Reach.PLAIN] = 100
    assert "looked through" not in listed(admin_client, queue="wanted")


@pytest.mark.usefixtures("short_sight")
@pytest.mark.parametrize(
    "query",
    [
        {},
        {"tab": "failed"},
        {"tab": "failed", "finished_at__range__gte_0": "2000-01-01"},
        {"tab": "running"},
        {"q": "subject:shop.order:1"},
    ],
    ids=str,
)
def test_what_an_index_finds_is_found_at_once(admin_client: Client, query: dict[str, str]) -> None:
    """The jobs that run are the oldest: they must not be sought among all that wait."""
    found = {
        "failed": make_job(status="failed", finished_at=sql.SQL("now() - interval '1 hour'")),
        "running": make_running_job(subject="shop.order:1").id,
    }
    make_jobs(20)
    make_jobs(15, status="failed", finished_at=NOW)
    text = listed(admin_client, **query)
    assert "looked through" not in text
    assert found[query.get("tab", "running")] in ids_in(text)


@pytest.mark.usefixtures("short_sight")
@pytest.mark.parametrize("day", ["2026-01-01", "2026-01-05", "2026-01-09", "2026-01-20"])
def test_a_time_of_long_ago_is_found_at_once(admin_client: Client, day: str) -> None:
    wanted = []
    for number in range(1, 10):
        moment = sql.SQL("{}::timestamptz").format(sql.Literal(f"2026-01-0{number} 12:00+05:45"))
        jobs = make_jobs(7, enqueued_at=moment)
        wanted = jobs if day.endswith(f"0{number}") else wanted
    query = {"enqueued_at__range__gte_0": day, "enqueued_at__range__lte_0": day}
    text = listed(admin_client, **query)
    assert ids_in(text) == wanted[::-1]
    newest = listed(admin_client, before=str(Job.objects.order_by("id")[0].pk), **query)
    assert "No index finds" in newest or ids_in(newest) == wanted[::-1]


@pytest.mark.usefixtures("short_sight")
def test_new_jobs_are_counted_as_far_as_the_list_looks(admin_client: Client) -> None:
    first = make_job(queue_name="wanted")
    make_jobs(5, queue_name="wanted")
    make_jobs(20)
    make_jobs(5, queue_name="wanted")
    query = {"queue": "wanted", "count_after": str(first)}
    answer = admin_client.get(reverse("admin:pgjobs_job_changelist"), query).json()
    assert answer == {"text": "5 new jobs"}


def test_a_time_is_looked_for_where_there_are_no_jobs(admin_client: Client) -> None:
    assert ids_in(listed(admin_client, enqueued_at__range__lte_0="2020-01-01")) == []


def scanned(queries: CaptureQueriesContext) -> dict[str, float]:
    """Return the most rows that any scan of jobs yields or drops, for each statement."""
    most: dict[str, float] = {}
    statements = [query["sql"] for query in queries if "pgjobs_job" in query["sql"]]
    for statement in statements:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}")
            found = cursor.fetchone()[0]
        plans = [(found if isinstance(found, list) else json.loads(found))[0]["Plan"]]
        while plans:
            node = plans.pop()
            plans += node.get("Plans", [])
            if "pgjobs_job" in node.get("Relation Name", ""):
                rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                read = (rows + node.get("Rows Removed by Index Recheck", 0)) * node["Actual Loops"]
                most[statement] = max(most.get(statement, 0), read)
    return most


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        {},
        {"queue": "nothing"},
        {"tab": "failed"},
        {"tab": "failed", "queue": "nothing"},
        {"tab": "successful", "q": "error:nothing"},
        {"tab": "ready", "task": "nothing"},
        {"tab": "running"},
        {"tab": "retrying", "queue": "nothing"},
        {"tab": "blocked"},
        {"attempts__range__gte": "0"},
        {"q": "args.0:nothing"},
        {"q": "subject:nothing"},
    ],
    ids=str,
)
def test_no_statement_reads_more_than_its_share(
    admin_client: Client, query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing reads more than 100,000 rows of millions; here 300 stand for them."""
    for name in ("MAX_READ", "MAX_COUNTED", "MAX_SAMPLED"):
        monkeypatch.setattr(tabs, name, 300)
    for name in ("LOOK_THROUGH", "LOOK_THROUGH_RARE"):
        monkeypatch.setattr(changelist, name, {Reach.PLAIN: 300, Reach.SLOW: 200})
    monkeypatch.setattr("django_pgjobs.admin.job_list.suggestions.RECENT_JOBS", 300)
    make_jobs(100, attempts=1, due_at=LATER)
    make_running_job()
    for status in ("failed", "successful"):
        make_jobs(5_000, status=status, finished_at=sql.SQL("now() - random() * interval '9 d'"))
    make_jobs(6_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE pgjobs_job")
        # Of a table as small as this, what tests before left dead decides between the two.
        cursor.execute("SET LOCAL enable_seqscan = off")
    with CaptureQueriesContext(connection) as queries:
        listed(admin_client, **query)
    read = scanned(queries)
    assert read
    assert max(read.values()) <= 350, max(read, key=lambda statement: read[statement])
