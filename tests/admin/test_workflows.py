"""The pages of workflows: the list, a batch with what is below it, and the page of a job in one."""

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

from django_pgjobs import workflow
from django_pgjobs.admin.workflows import listing
from django_pgjobs.models import Job
from django_pgjobs.queries import workflow_pages
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.admin.lists import ids_in
from tests.factories import make_batch, make_job
from tests.test_admin import HOSTILE, NOW

pytestmark = pytest.mark.django_db

LIST = "admin:pgjobs_batch_changelist"
PAGE = "admin:pgjobs_batch_change"


def read(client: Client, name: str = LIST, *args: Any, **query: Any) -> str:
    """Return the text of a page that has to be there."""
    response = client.get(reverse(name, args=args), query)
    assert response.status_code == 200
    return response.content.decode()


def plain(text: str) -> str:
    """Return the content of a page without tags and runs of white space."""
    content = text.partition('id="pgjobs-live"')[2].partition("</main>")[0]
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", content)))


def rows_of(text: str) -> list[int]:
    """Return the ids of the batches in the table of a page, in its order."""
    return [int(found) for found in re.findall(r'<tr data-pgjobs-row="(\d+)"', text)]


def ended(name: str, **columns: Any) -> int:
    """Make a workflow that is complete."""
    return make_batch(name, completed_at=NOW, tree_completed_at=NOW, **columns)


@pytest.fixture
def one_of_each() -> dict[str, int]:
    """A workflow of each state."""
    return {
        "open": make_batch("filling", sealed_at=None),
        "running": make_batch("walking", jobs=4, successful=1),
        "cancelling": make_batch("ending", jobs=4, cancel_requested_at=NOW),
        "broken": make_batch("bad", broken="a value is odd"),
        "failed": ended("poor", jobs=3, successful=2, failed=1, tree_failed=True),
        "cancelled": ended("gone", jobs=3, cancelled=3, tree_failed=True, cancel_requested_at=NOW),
        "successful": ended("fine", jobs=3, successful=3),
    }


# The list


@pytest.mark.parametrize(
    ("tab", "states"),
    [
        ("all", None),
        ("unfinished", {"open", "running", "cancelling", "broken"}),
        ("broken", {"broken"}),
        ("failed", {"failed"}),
        ("cancelled", {"cancelled"}),
        ("successful", {"successful"}),
        ("nothing like it", None),
    ],
)
def test_a_tab_lists_workflows_by_state_newest_first(
    admin_client: Client, one_of_each: dict[str, int], tab: str, states: set[str] | None
) -> None:
    text = read(admin_client, tab=tab)
    wanted = set(one_of_each) if states is None else states
    assert rows_of(text) == sorted((one_of_each[state] for state in wanted), reverse=True)


def test_a_state_is_an_icon_and_a_word(admin_client: Client, one_of_each: dict[str, int]) -> None:
    text = read(admin_client)
    for word in ("Open", "Running", "Being cancelled", "Broken", "Failed", "Cancelled"):
        assert f"</span> {word}</span>" in text


def test_the_numbers_are_those_of_the_whole_tree(admin_client: Client) -> None:
    """What is noted and not counted yet is among them; no job is read."""
    with workflow("payroll") as pay:
        pay.each(tasks.add.s(1))
        pay.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_batch_change (batch_id, successful) VALUES (%s, 1)", [pay.pk]
        )
    with CaptureQueriesContext(connection) as queries:
        text = plain(read(admin_client))
    assert "payroll #" in text
    assert "2 jobs: 1 successful, 0 failed, 0 cancelled, 1 unfinished" in text
    assert not any("pgjobs_job" in query["sql"] for query in queries)


def test_numbers_that_nobody_can_have_counted_are_drawn(admin_client: Client) -> None:
    make_batch("drift", jobs=-5, successful=-2, failed=7)
    text = read(admin_client)
    assert 'x="0.00" width="100.00"' in text


def test_the_list_takes_a_fixed_number_of_statements(admin_client: Client) -> None:
    counts = []
    for _ in range(2):
        for number in range(10):
            make_batch(parent_id=make_batch(f"flow {number}", jobs=1))
        with CaptureQueriesContext(connection) as queries:
            read(admin_client, tab="unfinished", q="flow")
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 10


@pytest.mark.slow
def test_pages_go_on_behind_the_last_workflow(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE_SIZE", 3)
    ids = [make_batch(f"flow {number}") for number in range(8)][::-1]
    make_batch("part", parent_id=ids[0])
    first = read(admin_client)
    second = read(admin_client, after=ids[2])
    third = read(admin_client, after=ids[5])
    assert [rows_of(first), rows_of(second), rows_of(third)] == [ids[:3], ids[3:6], ids[6:]]
    assert (f'href="?after={ids[2]}" rel="next"' in first, 'rel="prev"' in first) == (True, False)
    assert f'href="?before={ids[3]}" rel="prev"' in second
    assert 'rel="next"' not in third
    assert rows_of(read(admin_client, before=ids[3])) == ids[:3]
    # New ones do not move what is behind a place.
    make_batch("new")
    assert rows_of(read(admin_client, after=ids[2])) == ids[3:6]
    assert rows_of(read(admin_client, before=ids[1])) == rows_of(read(admin_client))


def test_a_search_looks_only_so_far_and_leads_on(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOK_THROUGH", 4)
    wanted = make_batch("rare")
    others = [make_batch("other") for _ in range(6)]
    text = read(admin_client, q="rare")
    assert rows_of(text) == []
    assert "4 workflows were looked through." in text
    further = re.search(r'<a href="\?([^"]*)">Look further', text)
    assert further
    found = admin_client.get(f"{reverse(LIST)}?{html.unescape(further[1])}").content.decode()
    assert rows_of(found) == [wanted]
    # An index leads to numbers.
    assert rows_of(read(admin_client, q=str(wanted))) == [wanted]
    assert rows_of(read(admin_client, q=f"#{others[2]}")) == [others[2]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"q": "PAY"}, ["payroll"]),
        ({"q": "key:2026-10"}, ["payroll"]),
        ({"q": "key:none"}, []),
        ({"q": "nothing"}, []),
        ({"since_0": "2001-01-01", "until_0": "2002-01-01"}, ["old"]),
        ({"since_0": "2001-01-01", "since_1": "12:00", "q": "o"}, ["payroll"]),
        ({"q": " "}, ["payroll", "old"]),
    ],
)
def test_workflows_are_found_by_name_key_and_time(
    admin_client: Client, query: dict[str, str], names: list[str]
) -> None:
    created = sql.SQL("'2001-01-01 02:00+00'")
    ids = {
        "old": make_batch("old", created_at=created),
        "payroll": make_batch("payroll", dedupe_key="2026-10"),
    }
    assert rows_of(read(admin_client, **query)) == [ids[name] for name in names]


def test_the_list_has_one_name_everywhere(admin_client: Client) -> None:
    batch = make_batch()
    pages = (read(admin_client), read(admin_client, "admin:pgjobs_batch_history", batch))
    listed = re.escape(reverse(LIST))
    for text in (*pages, read(admin_client, "admin:index")):
        found = re.findall(rf'<a href="{listed}"[^>]*>([^<]*)</a>', text)
        assert found and set(found) - {"View"} == {"Workflows"}


def test_a_workflow_without_a_name_is_called_by_its_number(admin_client: Client) -> None:
    batch = make_batch("")
    text = read(admin_client)
    assert f'href="{reverse(PAGE, args=[batch])}">#{batch}</a>' in text


def test_the_number_of_a_part_finds_its_workflow(admin_client: Client) -> None:
    root = make_batch("root")
    make_batch("another")
    part = make_batch("part", parent_id=make_batch("middle", parent_id=root))
    assert rows_of(read(admin_client, q=str(part))) == [root]


@pytest.mark.parametrize(
    "query",
    [{"q": "\0"}, {"since_0": "tomorrow"}, {"since_1": "12:00"}, {"q": "x" * 600}],
)
def test_what_is_filled_in_wrongly_shows_nothing_and_says_why(
    admin_client: Client, query: dict[str, str]
) -> None:
    make_batch()
    text = read(admin_client, **query)
    assert rows_of(text) == []
    assert 'class="errornote"' in text


@pytest.mark.parametrize("value", ["x", "", "9" * 40, "1~2", "-1"])
def test_a_place_that_is_none_is_the_first_page(admin_client: Client, value: str) -> None:
    batch = make_batch()
    assert rows_of(read(admin_client, before=value)) == [batch]


# A batch


@pytest.mark.slow
def test_a_tree_is_drawn_owners_first_with_links_to_the_jobs(admin_client: Client) -> None:
    with workflow("payroll") as pay:
        cheques = pay.each(tasks.add.s(1))
        after = cheques.then(tasks.echo.s())
        part = pay.batch("part")
        part.add(tasks.fail_once.s())
        part.seal()
        pay.add(tasks.add.s(1, 1), tasks.add.s(2, 2))
    run_jobs()
    text = read(admin_client, PAGE, pay.pk)
    assert rows_of(text) == [pay.pk, cheques.pk, after.pk, part.pk]
    assert f"Each result of #{pay.pk}" in plain(text)
    assert f"The end of #{cheques.pk}" in plain(text)
    link = re.search(r'class="pgjobs-bad" href="([^"]*)"', text)
    assert link
    found = admin_client.get(html.unescape(link[1])).content.decode()
    assert ids_in(found) == list(Job.objects.filter(status="failed").values_list("pk", flat=True))
    # Those at the top lead to the jobs of the whole tree.
    head = text.partition('class="pgjobs-row pgjobs-job-head"')[2].partition("</div>")[0]
    everything = Job.objects.filter(batch_id__isnull=False)
    for (address, number), jobs in zip(
        re.findall(r'<a [^>]*href="([^"]*)">(\d+) ', head),
        (everything, everything.filter(status="failed")),
        strict=True,
    ):
        found = ids_in(admin_client.get(html.unescape(address)).content.decode())
        assert sorted(found) == sorted(jobs.values_list("pk", flat=True))
        assert len(found) == int(number)
    assert "Why does it not end?" not in text
    assert "data-pgjobs-done" in text
    # Its own page begins at a part.
    assert rows_of(read(admin_client, PAGE, cheques.pk)) == [cheques.pk, after.pk]
    assert f"payroll #{pay.pk}" in plain(read(admin_client, PAGE, cheques.pk))


def test_a_batch_that_does_not_end_says_why(admin_client: Client) -> None:
    with workflow("slow", seal=False) as flow:
        flow.add(tasks.add.s(1, 1))
        part = flow.batch("part")
    text = read(admin_client, PAGE, flow.pk)
    assert "Press Seal… on its page in the admin, or call manage.py jobs workflows seal." in text
    assert "1 job of it waits" in text
    why = text.partition("Why does it not end?")[2].partition("</section>")[0]
    assert f'href="{reverse(PAGE, args=[part.pk])}"' in why
    assert "data-pgjobs-done" not in text


def test_a_broken_batch_says_what_was_raised(admin_client: Client) -> None:
    root = make_batch()
    text = read(admin_client, PAGE, make_batch(parent_id=root, broken="value out of range"))
    assert "cannot be counted, which is tried each minute: value out of range" in plain(text)
    assert "A batch below it is broken" in read(admin_client)


@pytest.mark.slow
def test_a_tree_of_many_batches_is_cut(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_pages, "MAX_SUMMED", 8)
    for module in (
        "django_pgjobs.queries.workflow_pages",
        "django_pgjobs.admin.workflows.batch_page",
    ):
        monkeypatch.setattr(f"{module}.MAX_SHOWN", 6)
        monkeypatch.setattr(f"{module}.MAX_CHILDREN", 3)
    monkeypatch.setattr("django_pgjobs.admin.workflows.batch_page.MAX_SUMMED", 8)
    root = make_batch("root", jobs=1)
    children = [make_batch(parent_id=root, jobs=1) for _ in range(5)]
    grandchildren = [make_batch(parent_id=children[0], jobs=1) for _ in range(5)]
    text = read(admin_client, PAGE, root)
    assert rows_of(text) == [root, children[0], *grandchildren[:1], *children[1:3]]
    assert "6 of more than 8 batches are shown" in plain(text)
    assert "more than 8" in text
    assert "of the first 8 batches" in plain(text)
    # At the end of what is shown below a batch.
    more = re.search(rf'href="([^"]*behind={children[2]})">2 more below root #{root}<', text)
    assert more
    assert text.index(f'data-pgjobs-row="{children[2]}"') < more.start()
    assert rows_of(admin_client.get(more[1]).content.decode()) == [root, *children[3:]]
    assert rows_of(read(admin_client, PAGE, children[0])) == [children[0], *grandchildren[:3]]


@pytest.mark.parametrize("key", ["0", "-1", "x", "9" * 30, "17", "a\0b"])
def test_a_batch_that_is_not_there_is_said_so(admin_client: Client, key: str) -> None:
    response = admin_client.get(reverse(PAGE, args=[key]))
    assert response.status_code == 404
    assert "There is no batch" in response.content.decode()


def test_what_is_kept_with_a_batch_is_masked(admin_client: Client) -> None:
    batch = make_batch(metadata={"month": "2026-10", "api_token": "s3cret"}, dedupe_key="once")
    text = read(admin_client, PAGE, batch)
    assert "2026-10" in text
    assert "s3cret" not in text
    assert "once" in text


def test_callbacks_and_what_opened_a_batch_are_named(admin_client: Client) -> None:
    job = make_job()
    batch = make_batch(
        opener_id=job,
        callbacks=[{"event": "success", "task_path": "shop.tasks.tell"}, 7, {"event": []}],
        on_failed_job="cancel workflow",
        completions=2,
    )
    text = plain(read(admin_client, PAGE, batch))
    assert "shop.tasks.tell if all succeeds" in text
    assert f"Job {job}" in text
    assert "Cancel the workflow" in text
    assert "2 times" in text


@pytest.mark.parametrize(
    "columns",
    [
        {"callbacks": {"a": 1}, "metadata": HOSTILE},
        {
            "callbacks": [{"event": "success", "task_path": HOSTILE}],
            "completions": 1,
            "completed_at": sql.SQL("'9999-12-30 00:00+00'"),
            "tree_completed_at": sql.SQL("'9999-12-30 00:00+00'"),
        },
        {"callbacks": sql.SQL('\'[{"event": "\\ud800", "task_path": "\\ud800"}]\'::json')},
        {"metadata": sql.SQL("(repeat('[', 900) || repeat(']', 900))::json")},
        {
            "created_at": sql.SQL("'0001-01-02 00:00+00'"),
            "sealed_at": sql.SQL("'9999-12-30 00:00+00'"),
        },
        {"jobs": 10**12, **dict.fromkeys(("successful", "failed", "cancelled"), -(10**12))},
    ],
)
def test_no_value_of_a_row_breaks_a_page(admin_client: Client, columns: dict[str, Any]) -> None:
    batch = make_batch(**columns)
    assert rows_of(read(admin_client, PAGE, batch)) == [batch]
    assert rows_of(read(admin_client)) == [batch]


@pytest.mark.slow
def test_hostile_names_are_text(admin_client: Client) -> None:
    batch = make_batch(
        HOSTILE,
        dedupe_key=HOSTILE,
        broken=HOSTILE,
        metadata={HOSTILE: HOSTILE},
        callbacks=[{"event": "success", "task_path": HOSTILE}],
        sealed_at=None,
    )
    make_batch(HOSTILE, parent_id=batch)
    job = make_job(batch_id=batch)
    for text in (
        read(admin_client),
        read(admin_client, q=HOSTILE),
        read(admin_client, PAGE, batch),
        read(admin_client, "admin:pgjobs_job_change", job),
        read(admin_client, "admin:pgjobs_batch_cancel", batch),
        read(admin_client, "admin:pgjobs_batch_history", batch),
    ):
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "&lt;script&gt;alert(1)" in text
