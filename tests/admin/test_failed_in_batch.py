"""The failed jobs on the page of a batch: which of a tree, why, and what finding them costs."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from psycopg import sql

from django_pgjobs import requeue
from django_pgjobs.admin import pages
from django_pgjobs.admin.workflows import failed_jobs
from django_pgjobs.queries import workflow_pages
from django_pgjobs.queries.cursor import fetch
from tests.admin.lists import ids_in
from tests.admin.test_workflows import PAGE, plain, read
from tests.factories import make_batch, make_job, make_jobs
from tests.planner import KNOWN, forget, rows_read
from tests.test_admin import HOSTILE, NOW

pytestmark = pytest.mark.django_db

TABLES = ("pgjobs_job_finished", "pgjobs_batch")


def error_of(message: str, exception_class: str = "shop.errors.Order.Missing") -> dict[str, Any]:
    return {"attempt": 1, "exception_class": exception_class, "message": message, "traceback": ""}


def fail(batch: int, message: str = "no such order", **columns: Any) -> int:
    """Make a job that failed for good."""
    given = {"errors": [error_of(message)], "attempts": 3, "finished_at": NOW}
    return make_job("shop.tasks.pay", status="failed", batch_id=batch, **(given | columns))


def section(text: str) -> str:
    """Return what a page says of failed jobs, "" if it says nothing."""
    begin = '<section aria-labelledby="pgjobs-h-failed">'
    text = text.replace("<wbr>", "")
    return text.partition(begin)[2].partition("</section>")[0]


def shown_in(text: str) -> list[int]:
    """Return the ids of the failed jobs of a page, in its order."""
    return [int(found) for found in re.findall(r'data-pgjobs-row="job-(\d+)"', section(text))]


def test_the_failed_jobs_of_a_tree_are_told_with_their_errors(admin_client: Client) -> None:
    root = make_batch("payroll", jobs=1, failed=1)
    below = make_batch("cheques", parent_id=make_batch("part", parent_id=root), jobs=2, failed=1)
    first = fail(root, "\n timed out\nafter 3 s", max_attempts=5, lost_count=1)
    second = fail(below, "first", errors=[error_of("first"), error_of("gone", "KeyError")])
    make_job(status="successful", finished_at=NOW, batch_id=below)
    fail(make_batch("other", failed=1))
    text = read(admin_client, PAGE, root)
    assert shown_in(text) == [second, first]
    assert f'<a href="{reverse("admin:pgjobs_job_change", args=[first])}">' in section(text)
    told = plain(f'id="pgjobs-live"{section(text)}</main>')
    assert f"shop.tasks.pay #{first} Order.Missing timed out 3/6" in told
    assert f"shop.tasks.pay #{second} KeyError gone 3 " in told
    assert "after 3 s" not in told
    assert "All " not in told
    # Its own page has what is below it.
    assert shown_in(read(admin_client, PAGE, below)) == [second]


def test_the_newest_ten_are_shown_and_a_link_leads_to_all(admin_client: Client) -> None:
    root = make_batch(jobs=12, failed=7)
    part = make_batch(parent_id=root, jobs=5, failed=5)
    failed = [fail(batch) for batch in [root] * 7 + [part] * 5]
    text = read(admin_client, PAGE, root)
    assert shown_in(text) == failed[:1:-1]
    link = re.search(r'<a href="([^"]*)">All 12 failed jobs…', section(text))
    assert link
    found = admin_client.get(html.unescape(link[1])).content.decode()
    assert ids_in(found) == failed[::-1]


def test_a_job_that_is_tried_again_has_not_failed(admin_client: Client) -> None:
    root = make_batch(sealed_at=None)
    job = fail(root)
    fail(root)
    assert requeue(job)
    assert job not in shown_in(read(admin_client, PAGE, root))


def test_where_nothing_failed_no_job_is_looked_for(admin_client: Client) -> None:
    root = make_batch(jobs=3, successful=3, tree_completed_at=NOW, completed_at=NOW)
    with CaptureQueriesContext(connection) as queries:
        assert section(read(admin_client, PAGE, root)) == ""
    assert not any("pgjobs_job_finished" in query["sql"] for query in queries)


def test_failed_jobs_that_were_deleted_are_not_found(admin_client: Client) -> None:
    assert "None was found." in section(read(admin_client, PAGE, make_batch(failed=2)))


def test_what_takes_too_long_is_left_out_with_a_link(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def list_slowly(cursor: Any, batch_id: int) -> Any:
        cursor.execute("SELECT pg_sleep(10)")

    root = make_batch("payroll", jobs=1, failed=1)
    monkeypatch.setattr(pages, "PAGE_SECONDS", 0.5)
    monkeypatch.setattr(failed_jobs, "list_failed", list_slowly)
    text = read(admin_client, PAGE, root)
    assert "They could not be found in time." in section(text)
    assert "The failed job…" in section(text)
    assert "payroll" in text


def test_the_number_of_statements_is_that_of_one_failed_job(admin_client: Client) -> None:
    root = make_batch(jobs=10, failed=10)
    counts = []
    for _ in range(2):
        for _ in range(5):
            fail(root)
        with CaptureQueriesContext(connection) as queries:
            read(admin_client, PAGE, root)
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("ended_at", [None, sql.SQL("now() - interval '1 day'")])
def test_of_many_batches_the_newest_failed_jobs_are_found(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, ended_at: Any
) -> None:
    monkeypatch.setattr(workflow_pages, "MAX_SUMMED", 2)
    monkeypatch.setattr(workflow_pages, "MAX_LOOKED_AT", 3)
    begun_at = sql.SQL("now() - interval '2 days'")
    root = make_batch(created_at=begun_at, tree_completed_at=ended_at)
    parts = [make_batch(parent_id=root) for _ in range(6)]
    deep = make_batch(parent_id=parts[-1])
    when = ended_at or NOW
    failed = [fail(deep, finished_at=when), fail(parts[0], finished_at=when)]
    # Others are looked at first, unless they failed after the end of the tree.
    later = sql.SQL("now() + interval '1 hour'")
    others = [fail(make_batch(), finished_at=later) for _ in range(1 if ended_at is None else 4)]
    text = read(admin_client, PAGE, root)
    assert shown_in(text) == failed[::-1]
    assert "All failed jobs…" in section(text)
    assert not set(others) & set(shown_in(text))


def test_a_large_tree_in_which_nothing_is_found_says_nothing(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_pages, "MAX_SUMMED", 2)
    root = make_batch()
    for _ in range(4):
        make_batch(parent_id=root)
    assert section(read(admin_client, PAGE, root)) == ""


@pytest.mark.parametrize(
    "columns",
    [
        {"errors": []},
        {"errors": [None]},
        {"errors": [{"exception_class": 5, "message": [1]}]},
        {"errors": [error_of("", "")]},
        {"errors": [error_of("x" * 100_000, "y" * 100_000)]},
        {"errors": [error_of(HOSTILE, HOSTILE)], "task_path": HOSTILE},
        {"max_attempts": 2**31 - 1, "lost_count": 2**31 - 1},
        {"finished_at": None},
    ],
)
def test_no_value_of_a_job_breaks_the_page(admin_client: Client, columns: dict[str, Any]) -> None:
    root = make_batch(failed=1, tree_completed_at=sql.SQL("'9999-12-30 00:00+00'"))
    job = make_job(**({"status": "failed", "finished_at": NOW, "batch_id": root} | columns))
    text = read(admin_client, PAGE, root)
    assert shown_in(text) == [job]
    assert HOSTILE not in text


# What it costs


@pytest.mark.slow
@pytest.mark.parametrize("known", [*KNOWN, "all"])
def test_one_failed_job_among_many_is_found_without_reading_them(known: str) -> None:
    """In a large batch, below many batches, behind many that failed elsewhere."""
    with connection.cursor() as cursor:
        # Files of their own: what tests before this one have left changes what plans cost.
        cursor.execute("TRUNCATE pgjobs_job, pgjobs_batch, pgjobs_dependency")
        root = make_batch(failed=1)
        part = make_batch(parent_id=root)
        for _ in range(2):
            make_jobs(10_000, status="successful", finished_at=NOW, batch_id=part)
        wanted = fail(part)
        make_jobs(10_000, status="successful", finished_at=NOW, batch_id=part)
        make_jobs(10_000, status="failed", finished_at=NOW, batch_id=make_batch())
        cursor.execute(
            "INSERT INTO pgjobs_batch (id, root_id, parent_id, flow_id)"
            " SELECT n, %s, %s, n FROM generate_series(100000, 119999) AS n",
            [root, root],
        )
        cursor.execute("ANALYZE pgjobs_job_finished, pgjobs_batch")
        if known in KNOWN:
            forget(cursor, known, TABLES)
        read_before = [rows_read(cursor, table) for table in TABLES]
        params = {"max_batches": 100, "max_looked_at": 500, "max_jobs": 10}
        found = fetch(cursor, "list_failed_in_tree", {"batch_id": root, **params})
        jobs, batches = (
            rows_read(cursor, table) - before
            for table, before in zip(TABLES, read_before, strict=True)
        )
    assert [row[0] for row in found] == [wanted]
    assert jobs < 1_000
    # Those that are looked through, and up to two above each failed job of others.
    assert batches < 2_000
