"""The list of jobs: its tabs, its pages, and what a row says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from psycopg import sql

from django_pgjobs import pause
from django_pgjobs.admin.job_list import changelist, tabs
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import Job
from tests.admin.lists import (
    LATER,
    NOW,
    address,
    counts,
    ids_in,
    link,
    listed,
    make_one_of_each,
    query_of,
)
from tests.factories import make_job, make_jobs, make_running_job

pytestmark = pytest.mark.django_db

NO_PLACES = (
    *("x", "9" * 30, "1_0", "\u0663", "~", "~x", "2026~1", "2026-01-01~1", "\0", "' OR 1=1 --"),
    *("2026-01-01T00:00:00~1", "9999-99-99T00:00:00+00:00~1", str(2**63)),
)


@pytest.mark.slow
def test_each_job_is_on_its_tab_and_on_the_first(admin_client: Client) -> None:
    ids = make_one_of_each()
    for tab, job_id in ids.items():
        text = listed(admin_client, tab=tab)
        assert ids_in(text) == [job_id]
        assert re.search(rf'tab={tab}" aria-current="page"', text)
    assert ids_in(listed(admin_client)) == sorted(ids.values(), reverse=True)
    assert len(ids_in(listed(admin_client, tab="nonsense"))) == len(ids)


def test_tabs_say_how_many_jobs_they_have(admin_client: Client) -> None:
    make_one_of_each()
    make_jobs(4, status="failed", finished_at=NOW)
    make_jobs(1_233)
    found = counts(listed(admin_client, tab="failed", q="nothing"))
    assert found == {
        **dict.fromkeys(["scheduled", "running", "retrying", "blocked"], "1"),
        **dict.fromkeys(["cancelled", "successful"], "1"),
        "failed": "5",
        "ready": "1,234",
        "all": "1,245",
    }


def test_counts_end_where_nobody_compares_them(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabs, "MAX_COUNTED", 3)
    monkeypatch.setattr(tabs, "MAX_SAMPLED", 6)
    make_jobs(5, status="failed", finished_at=NOW)
    make_jobs(3, status="cancelled", finished_at=NOW)
    make_jobs(5, hold="dependencies", waits_for=1)
    make_jobs(9, run_after=LATER)
    found = counts(listed(admin_client))
    assert found["failed"].split() == ["3+", "more", "than", "3"]
    assert found["cancelled"] == "3"
    # Only some of the jobs that have not ended were looked at.
    assert found["blocked"].split()[-2:] in (["than", "3"], ["least", found["blocked"].split()[-1]])
    assert found["scheduled"].split() == ["3+", "more", "than", "3"]


def test_tabs_are_counted_by_one_statement_that_reads_a_bounded_number_of_rows() -> None:
    make_jobs(40)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        found = tabs.count_tabs(Job.objects.all())
    assert found["ready"] == tabs.Count(40)
    [query] = queries
    assert query["sql"].count("LIMIT") == 6


@pytest.mark.slow
@pytest.mark.parametrize("tab", ["all", "ready", "scheduled", "running", "failed"])
def test_pages_lead_to_every_job_once_and_back(admin_client: Client, tab: str) -> None:
    """Many end at the same time; some have no end at all."""
    if tab == "running":
        worker = make_running_job().worker_id
        make_jobs(129, status="running", worker_id=worker)
    else:
        common: dict[str, Any] = {"run_after": LATER} if tab == "scheduled" else {}
        if tab == "failed":
            common = {"status": "failed"}
            make_jobs(60, **common, finished_at=sql.SQL("now() - interval '1 day'"))
            make_jobs(10, **common, finished_at=NOW)
        make_jobs(60 if tab == "failed" else 130, **common)
    expected = [*Job.objects.order_by(*(["-finished_at"] if tab == "failed" else []), "-id")]
    pages = [listed(admin_client, tab=tab)]
    assert link(pages[0], "prev") is None
    while query := link(pages[-1], "next"):
        pages.append(listed(admin_client, **query))
    assert [len(ids_in(page)) for page in pages] == [50, 50, 30]
    assert [job_id for page in pages for job_id in ids_in(page)] == [job.pk for job in expected]
    back = listed(admin_client, **link(pages[2], "prev"))  # type: ignore[arg-type]
    assert ids_in(back) == ids_in(pages[1])
    first = listed(admin_client, **link(back, "prev"))  # type: ignore[arg-type]
    assert ids_in(first) == ids_in(pages[0])
    assert link(first, "prev") is None


@pytest.mark.slow
@pytest.mark.parametrize("tab", ["all", "ready", "running", "failed"])
def test_the_oldest_come_first_if_asked_for(admin_client: Client, tab: str) -> None:
    """Those that run longest of the running ones, those that ended first of the failed ones."""
    columns: dict[str, Any] = {}
    order = ["id"]
    if tab == "running":
        columns = {"status": "running", "worker_id": make_running_job().worker_id}
        order = ["last_attempted_at", "id"]
    if tab == "failed":
        columns, order = {"status": "failed"}, ["finished_at", "id"]
    name = {"running": "last_attempted_at", "failed": "finished_at"}.get(tab)
    for minutes in (30, 90, 60):
        ago = sql.SQL("now() - make_interval(mins => {})").format(minutes)
        make_jobs(25, **columns, **({name: ago} if name else {}))
    make_jobs(30, **columns)
    expected = list(Job.objects.order_by(*order).values_list("pk", flat=True))
    pages = [listed(admin_client, tab=tab, sort="oldest")]
    while query := link(pages[-1], "next"):
        assert query["sort"] == "oldest"
        pages.append(listed(admin_client, **query))
    assert [job_id for page in pages for job_id in ids_in(page)] == expected
    assert len(pages) == 3
    back = listed(admin_client, **link(pages[2], "prev"))  # type: ignore[arg-type]
    assert ids_in(back) == ids_in(pages[1])
    first = listed(admin_client, **link(back, "prev"))  # type: ignore[arg-type]
    assert ids_in(first) == ids_in(pages[0])
    assert link(first, "prev") is None
    assert "pgjobs-new" not in first


def test_a_search_from_the_oldest_leads_on_where_it_stopped(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelist, "LOOK_THROUGH", dict.fromkeys(changelist.LOOK_THROUGH, 5))
    ids = [*make_jobs(8), *make_jobs(2, "shop.other")]
    text = listed(admin_client, tab="ready", q="other", sort="oldest")
    assert ids_in(text) == []
    found = ids_in(listed(admin_client, **link(text, "next")))  # type: ignore[arg-type]
    assert found == ids[-2:]


def test_a_page_does_not_move_when_jobs_come(admin_client: Client) -> None:
    make_jobs(70)
    query = link(listed(admin_client), "next")
    assert query is not None
    before = ids_in(listed(admin_client, **query))
    make_jobs(30)
    assert ids_in(listed(admin_client, **query)) == before


def test_going_back_ends_at_a_full_first_page(admin_client: Client) -> None:
    ids = make_jobs(60)
    text = listed(admin_client, before=ids[-3])
    assert ids_in(text) == ids[:-51:-1]
    assert link(text, "prev") is None


@pytest.mark.parametrize("tab", ["all", "failed"])
def test_a_page_can_ask_how_many_jobs_have_come(admin_client: Client, tab: str) -> None:
    """The list does not move; it says that there is more to see."""
    kind = {"status": "failed", "finished_at": sql.SQL("clock_timestamp()")}
    make_jobs(60, **kind)
    text = listed(admin_client, tab=tab, queue="default")
    found = re.search(r'id="pgjobs-new" href="([^"]*)" data-pgjobs-source="\?([^"]*)" hidden', text)
    assert found
    assert query_of(found[1].removeprefix("?")) == {"tab": tab, "queue": "default"}
    ask = query_of(found[2])

    def answer() -> str:
        return str(admin_client.get(address(), ask).json()["text"])

    assert answer() == ""
    make_jobs(1, **kind)
    make_jobs(5, queue_name="other", **kind)
    assert answer() == "1 new job"
    make_jobs(36, **kind)
    assert answer() == "37 new jobs"
    make_jobs(70, **kind)
    assert answer() == "more than 100 new jobs"
    for wrong in ({**ask, "count_after": "x"}, {**ask, "nothing": "1"}):
        assert admin_client.get(address(), wrong).json() == {"text": ""}


@pytest.mark.slow
def test_nothing_new_is_counted_where_jobs_do_not_come_in_order(admin_client: Client) -> None:
    make_jobs(60)
    query = link(listed(admin_client), "next")
    assert 'id="pgjobs-new"' in listed(admin_client)
    assert 'id="pgjobs-new"' not in listed(admin_client, **query)
    assert 'id="pgjobs-new"' not in listed(admin_client, tab="ready")


@pytest.mark.parametrize("size", [25, 50, 100])
def test_a_page_has_the_size_that_was_chosen(admin_client: Client, size: int) -> None:
    make_jobs(110)
    text = listed(admin_client, per=size)
    assert len(ids_in(text)) == size
    assert link(text, "next")["per"] == str(size)  # type: ignore[index]
    assert len(ids_in(listed(admin_client, per="1000000"))) == 50


@pytest.mark.slow
@pytest.mark.parametrize("tab", ["all", "failed"])
@pytest.mark.parametrize("name", ["after", "before"])
def test_a_place_that_is_none_leads_to_the_first_page(
    admin_client: Client, tab: str, name: str
) -> None:
    make_jobs(2, status="failed", finished_at=NOW)
    for place in NO_PLACES:
        text = listed(admin_client, tab=tab, **{name: place})
        assert "This address names no page of the list" in text, place
        assert len(ids_in(text)) == 2, place


@pytest.mark.parametrize(
    ("tab", "place"),
    [
        ("all", "-5"),
        ("all", str(2**63 - 1)),
        ("failed", "~5"),
        ("failed", "0001-01-01T00:00:00+14:00~1"),
        ("failed", "9999-12-31T23:59:59-14:00~1"),
    ],
)
@pytest.mark.parametrize("name", ["after", "before"])
def test_a_place_may_be_beyond_all_jobs(
    admin_client: Client, tab: str, place: str, name: str
) -> None:
    make_jobs(2, status="failed", finished_at=NOW)
    text = listed(admin_client, tab=tab, **{name: place})
    assert len(ids_in(text)) in (0, 2)
    assert "names no page" not in text


@pytest.mark.slow
def test_the_page_is_small_and_asks_little(client: Client) -> None:
    """At most 12 statements and 150 kB, for whoever needs the most."""
    make_one_of_each()
    make_jobs(70, args=["x" * 150], status="successful", finished_at=NOW)
    user = User.objects.create_user("operator", is_staff=True)
    for permission in Permission.objects.filter(content_type__app_label="pgjobs"):
        user.user_permissions.add(permission)
    client.force_login(user)
    for query in ({}, {"tab": "retrying", "queue": "default"}, {"tab": "failed", "q": "tag:a"}):
        with CaptureQueriesContext(connection) as queries:
            text = listed(client, **query)
        assert len(queries) <= 12, [query["sql"][:80] for query in queries]
        assert len(text) < 150_000


def test_a_row_says_what_a_job_is(admin_client: Client) -> None:
    make_job(
        "shop.tasks.send",
        queue_name="mail",
        priority=7,
        status="failed",
        args=[17, "Ann"],
        kwargs={"customer": 5},
        tags=["nightly", *(f"t{number}" for number in range(9))],
        attempts=3,
        max_attempts=5,
        enqueued_at=sql.SQL("now() - interval '3605 s'"),
        started_at=sql.SQL("now() - interval '3604.2 s'"),
        ready_at=sql.SQL("now() - interval '3604.6 s'"),
        last_attempted_at=sql.SQL("now() - interval '3603.8 s'"),
        finished_at=sql.SQL("now() - interval '3600 s'"),
        errors=[{"exception_class": "requests.ConnectTimeout", "message": "Read\ntimed out"}],
    )
    text = listed(admin_client)
    for words in (
        "17, &quot;Ann&quot;, customer=5",
        "ConnectTimeout: Read<",
        "nightly",
        "+5",
        "3/5",
        "priority 7",
        "1 h ago",
        "waited 800 ms · ran 3.8 s",
        "✕",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"run_after": LATER}, "in 59 min"),
        ({"attempts": 1, "due_at": LATER}, "retrying"),
        ({"attempts": 1, "due_at": NOW}, "overdue"),
        ({"hold": "dependencies"}, "Waits for other jobs"),
        ({"enqueued_at": sql.SQL("now() - interval '90 min'")}, ">waiting for 1 h 30 min</time>"),
        (
            {"status": "running", "last_attempted_at": sql.SQL("now() - interval '90 min'")},
            "running for 1 h 30 min",
        ),
        ({"status": "running", "cancel_requested_at": NOW}, "asked to end"),
        ({"status": "successful"}, "–"),
    ],
)
def test_a_row_says_what_happens_next(
    admin_client: Client, columns: dict[str, Any], words: str
) -> None:
    make_job(**columns)
    assert words in listed(admin_client)


@pytest.mark.parametrize(
    ("columns", "is_paused"),
    [({}, True), ({"due_at": NOW}, True), ({"due_at": LATER}, False), ({"queue_name": "b"}, False)],
)
def test_a_row_and_the_page_of_a_job_say_that_only_a_pause_keeps_it(
    admin_client: Client, columns: dict[str, Any], *, is_paused: bool
) -> None:
    job_id = make_job(**columns)
    pause(queue="default")
    assert (">paused<" in listed(admin_client)) is is_paused
    text = admin_client.get(f"/admin/pgjobs/job/{job_id}/change/").content.decode()
    assert ('<span class="pgjobs-badge">paused</span>' in text) is is_paused


def test_a_row_does_not_say_the_errors_of_a_job_that_is_over_them(admin_client: Client) -> None:
    make_job(status="successful", finished_at=NOW, errors=[{"exception_class": "a.Stale"}])
    assert "Stale" not in listed(admin_client)


@pytest.mark.parametrize("query", [{}, {"q": "a:b"}, {"queue": "nothing"}], ids=str)
def test_the_page_has_no_script_and_no_style_of_its_own(
    admin_client: Client, query: dict[str, str]
) -> None:
    """A strict Content-Security-Policy would stop them."""
    make_one_of_each()
    text = listed(admin_client, **query)
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|javascript:", text)


@pytest.mark.parametrize(
    ("tab", "words"),
    [
        ("failed", "No failed jobs. They are kept for 30 days."),
        ("successful", "No successful jobs. They are kept for 7 days."),
        ("running", "No running jobs."),
        ("all", "No jobs."),
    ],
)
def test_an_empty_list_says_why(admin_client: Client, tab: str, words: str) -> None:
    assert words in listed(admin_client, tab=tab)
    assert "No job of this tab matches." in listed(admin_client, tab=tab, queue="x")


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, "kept for ever"), (60, "less than a day"), (86_400, "for 1 day.")]
)
def test_an_empty_list_says_how_long_jobs_stay(
    admin_client: Client, seconds: float | None, words: str
) -> None:
    with override_settings(PGJOBS={"FAILED_RETENTION_SECONDS": seconds}):
        assert words in listed(admin_client, tab="failed")


def test_a_list_that_takes_too_long_says_so(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_long(*args: Any) -> Any:
        raise TooSlow("late")

    monkeypatch.setattr(changelist, "count_tabs", take_long)
    response = admin_client.get(address())
    assert response.status_code == 503
    assert "reads more than it has the time for" in response.content.decode()


def test_an_unknown_filter_is_left_out_and_that_is_said(admin_client: Client) -> None:
    """Any lookup of Django would be one more way to read what is masked."""
    make_job(kwargs={"token": "s3cret"})
    response = admin_client.get(address(), {"kwargs__contains": "s3cret"}, follow=True)
    assert response.redirect_chain == [(f"{address()}?e=1", 302)]
    assert "A part of the address was left out" in response.content.decode()
