"""Going through jobs by the times of their ends, some of which Python has no datetime for.

An index gives the order, so such a query reads the column as it is: no position, bound or
address may carry a time away from it that cannot be read, or that is another row's.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Q
from django.test import Client

from django_pgjobs.admin.job_list import changelist, tabs
from django_pgjobs.admin.job_list.search import Reach
from django_pgjobs.bulk import preview as previewing
from django_pgjobs.bulk import walk as walking
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.changes import create_change, run_change
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.bulk.walk import Walk
from tests.admin.lists import ids_in, link, listed
from tests.admin.test_bulk import NOW
from tests.admin.test_odd_times import ODD, tables
from tests.factories import ago, make_jobs
from tests.helpers import some_always
from tests.odd_rows import admit_odd_values

pytestmark = pytest.mark.django_db

# Those that sort before all times, and so may be part of a pinned selection.
PAST = [value for value in ODD if value == "-infinity" or value.endswith("BC")]
CHANGES = [verb for verb in ACTIONS if verb != "export"]
OPTIONS: dict[str, dict[str, Any]] = {
    "postpone": {"delay": 60.0},
    "move": {"queue_name": "other", "priority": None},
}
FAILED = Selection({"status": "failed"})


def make_odd(value: str, count: int = 1, *, status: str = "failed") -> list[int]:
    """Make good jobs and *count* with odd times, wherever they have one; return all ids."""
    admit_odd_values()
    columns: dict[str, Any] = {"finished_at": ago(60), "started_at": NOW, "last_attempted_at": NOW}
    if status == "ready":
        columns = {"due_at": NOW, "run_after": NOW}
    odd = make_jobs(count, status=status, **columns)
    with connection.cursor() as cursor:
        for column in tables()["pgjobs_job"]:
            cursor.execute(
                f"UPDATE pgjobs_job SET {column} = %s WHERE {column} IS NOT NULL AND id = ANY(%s)",
                [value, odd],
            )
    return odd + make_jobs(2, status=status, **columns)


def walk_of(selection: Selection, **sizes: int) -> Walk:
    """Return the walk over finished jobs."""
    return Walk(selection, ("failed", "ready"), Q(), lambda jobs: jobs, **sizes)


@pytest.mark.parametrize("value", PAST)
def test_one_odd_end_does_not_end_a_walk(value: str) -> None:
    ids = make_odd(value)
    found, position = walk_of(FAILED.pinned()).page(None)
    assert found == ids
    assert position == {"leg": 1}


@pytest.mark.parametrize("value", PAST)
@pytest.mark.parametrize(("page_jobs", "window_rows"), [(1, 100), (2, 1), (100, 1)])
def test_a_walk_meets_each_of_many_odd_ends_once(
    value: str, page_jobs: int, window_rows: int
) -> None:
    ids = make_odd(value, 5)
    pages = walk_of(FAILED.pinned(), page_jobs=page_jobs, window_rows=window_rows).pages()
    assert [job_id for page in pages for job_id in page] == ids


@pytest.mark.parametrize("value", ODD)
def test_a_walk_that_is_not_pinned_has_an_end(value: str) -> None:
    ids = make_odd(value, 5)
    walk = walk_of(FAILED, page_jobs=2, window_rows=1)
    position: Any = {"leg": 0}
    found = []
    for _ in range(20):
        page, position = walk.page(position)
        found += page
        if position is None:
            break
    assert sorted(found) == ids
    assert position is None


def test_a_position_that_an_older_version_stored_is_gone_on_from() -> None:
    ids = make_odd("-infinity")
    position = {"leg": 0, "at": datetime(2020, 1, 1, tzinfo=UTC).isoformat(), "id": 1}
    assert walk_of(FAILED.pinned()).page(position)[0] == ids[1:]


@pytest.mark.parametrize(
    ("verb", "value", "status", "page_jobs"),
    some_always(product(CHANGES, ODD, ["failed", "ready"], [1, 1_000]), every=9),
)
def test_a_bulk_change_goes_over_odd_times(
    verb: str, value: str, status: str, page_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "PAGE_JOBS", page_jobs)
    action = ACTIONS[verb]
    ids = make_odd(value, 2, status=status)
    selection = Selection({"status": status}).pinned()
    options = OPTIONS.get(verb, {})
    expected = set(walk_of(selection).jobs().filter(action.suits(options)).values_list("pk"))
    if status not in action.statuses:
        expected = set()
    boss = User.objects.create_superuser("boss")
    change = create_change(action, selection, options, user=boss)
    changed = run_change(change.pk).changed
    change.refresh_from_db()
    assert change.finished_at is not None
    assert change.error == ""
    assert {(job_id,) for job_id in changed} == expected
    if status == "failed" and verb in ("delete", "requeue"):
        # What ends later than the preview is not meant.
        assert sorted(changed) == (ids if value in PAST else ids[2:])


@pytest.mark.parametrize("value", ODD)
def test_the_bounds_of_a_preview_may_be_odd(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = make_odd(value, 5)
    monkeypatch.setattr(previewing, "MAX_ROWS", 2)
    selection = Selection({"task_path": "tests.tasks.add"}).pinned()
    found = previewing.preview(ACTIONS["delete"], selection, lambda jobs: jobs)
    assert found.total == (len(ids) if value in PAST else 2)


@pytest.mark.parametrize("value", ODD)
def test_how_many_jobs_a_tab_has_is_asked_without_their_times(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_odd(value, 3, status="ready")
    # The row that is asked for is an odd one.
    monkeypatch.setattr(tabs, "MAX_READ", 0 if value in PAST else 2)
    for tab in tabs.TABS:
        if tab.index_column == "due_at":
            assert tabs.exceeds_index(tab)


@pytest.mark.slow
@pytest.mark.parametrize("value", some_always(ODD, every=4))
@pytest.mark.parametrize("query", [{}, {"task": "tests.tasks.add"}, {"queue": "default"}])
def test_the_pages_of_a_list_show_each_odd_end_once(
    admin_client: Client, value: str, query: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelist, "PAGE_SIZES", (2,))
    for name in ("LOOK_THROUGH", "LOOK_THROUGH_RARE"):
        monkeypatch.setattr(changelist, name, {Reach.PLAIN: 3, Reach.SLOW: 3})
    ids = make_odd(value, 5)
    asked: dict[str, str] = {"tab": "failed", "per": "2", **query}
    for rel in ("next", "prev"):
        seen: list[int] = []
        for _ in range(12):
            text = listed(admin_client, **asked)
            seen += ids_in(text)
            following = link(text, rel)
            if following is None:
                break
            asked = following
        assert following is None
        assert sorted(set(seen)) == ids
        if rel == "next":
            assert len(seen) == len(ids)
