"""That no page reads much, by the plans of all that it asks.

The bounds and the tables are a tenth of the real ones or less, so 10,000 rows stand for 100,000.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_pgjobs.admin.job_list import batches, changelist, suggestions, tabs
from django_pgjobs.admin.overview import failures
from django_pgjobs.admin.overview import page as overview
from django_pgjobs.admin.workflows import listing
from django_pgjobs.bulk import preview
from django_pgjobs.queries import job_page, limit_pages, numbers, queue_pages, workflow_pages
from django_pgjobs.warnings import situation
from tests.admin.large_pages import list_pages
from tests.admin.many_jobs import fill, vacuum

FINISHED = 120_000
WAITING = 20_000
MAX_READ = 10_000
# Pairs of a queue and a task, of which the statistics have rows.
CELLS = 40
MAX_QUERIES = 12
MAX_BYTES = 150_000
# What begins and ends transactions asks for nothing.
CONTROL = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE SAVEPOINT", "SET TRANSACTION")

BOUNDS: Mapping[ModuleType, tuple[str, ...]] = {
    tabs: ("MAX_COUNTED", "MAX_READ", "MAX_SAMPLED"),
    changelist: ("LOOK_THROUGH", "LOOK_THROUGH_RARE"),
    batches: ("MAX_SORTED",),
    suggestions: ("RECENT_JOBS",),
    overview: ("MAX_FAILED_JOBS",),
    situation: ("MAX_LANES",),
    numbers: ("FEW",),
    failures: ("MAX_JOBS",),
    preview: ("MAX_COUNTED", "MAX_SKIPPED", "MAX_ROWS"),
    job_page: ("MAX_LOOKED_AT",),
    listing: ("LOOK_THROUGH",),
    workflow_pages: ("MAX_SUMMED", "MAX_LOOKED_AT"),
    limit_pages: ("MAX_JOBS", "MAX_RUNNING", "MAX_STATES"),
    queue_pages: ("MAX_RUNNING",),
}


def tenth(bound: Any) -> Any:
    """Return a tenth of a bound, or of each of a dict of them."""
    if isinstance(bound, dict):
        return {name: tenth(value) for name, value in bound.items()}
    return bound // 10


def scans_of(statement: str) -> Iterator[tuple[str, str, float]]:
    """Run *statement*; yield kind and name of each of its scans, and how many rows it read."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {statement}")
        [(found,)] = cursor.fetchall()
    nodes = [(found if isinstance(found, list) else json.loads(found))[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        name = node.get("Relation Name", node.get("Index Name", ""))
        if not name.startswith("pgjobs_"):
            continue
        dropped = node.get("Rows Removed by Filter", 0) + node.get(
            "Rows Removed by Index Recheck", 0
        )
        yield node["Node Type"], name, (node["Actual Rows"] + dropped) * node["Actual Loops"]


def complaints_about(statement: str) -> list[str]:
    """Return what is wrong with the plan of a statement."""
    found = []
    for kind, name, rows in scans_of(statement):
        if rows > MAX_READ:
            found.append(f"{kind} of {name} reads {rows:.0f} rows")
        # Its limit may have ended it early here; where what matches comes last it would not.
        if kind == "Seq Scan" and name == "pgjobs_job_finished":
            found.append(f"{kind} of {name}")
    return found


def once() -> Callable[..., Any]:
    """Return what reads once, as a cache for minutes does."""
    found: list[Any] = []

    def get(read: Callable[[], Any]) -> Any:
        if not found:
            found.append(read())
        return found[0]

    return get


# What is rolled back would stay in the tables, and in the planner's statistics, for other tests.
@pytest.mark.time_limit(600)
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_every_page_keeps_to_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in BOUNDS.items():
        for name in names:
            monkeypatch.setattr(module, name, tenth(getattr(module, name)))
    # These two read the whole selection, and are bounded by time instead.
    monkeypatch.setattr(preview, "_count_exactly", lambda *args, **flags: (None, None, None))
    monkeypatch.setattr(preview, "count_dependants", lambda jobs, **flags: None)
    # What a page reads of running jobs that take long is kept for minutes: it is read once here,
    # however fast the machine is.
    monkeypatch.setattr(situation, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(overview, "keep_usual", once())
    fill(finished=FINISHED, waiting=WAITING, cells=CELLS)
    vacuum()
    client = Client()
    client.force_login(User.objects.get(username="admin"))
    client.get(reverse("admin:app_list", args=["pgjobs"]))
    known: dict[str, list[str]] = {}
    wrong = []
    for page in list_pages(client):
        with CaptureQueriesContext(connection) as queries:
            response = client.get(page.address)
        statements = [query["sql"] for query in queries if not query["sql"].startswith(CONTROL)]
        # How many names there are to choose from, other tests decide: they declare tasks.
        size = len(re.sub(rb"<datalist.*?</datalist>", b"", response.content, flags=re.DOTALL))
        if response.status_code != 200 or size > MAX_BYTES:
            wrong.append(f"{page.name}: {response.status_code}, {size} bytes")
        if len(statements) > MAX_QUERIES:
            wrong.append(f"{page.name}: {len(statements)} statements")
        for statement in statements:
            if "pgjobs_" in statement and statement not in known:
                known[statement] = complaints_about(statement)
                wrong += [f"{page.name}: {text}: {statement:.200}" for text in known[statement]]
    assert len(known) > 100
    assert not wrong, "\n".join(wrong)
