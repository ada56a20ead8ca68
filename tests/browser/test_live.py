"""Live refresh in a browser: it shows what is new and never moves what somebody reads.

The pages' clock is moved by hand, so nothing here waits for the seconds to pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test.utils import modify_settings
from psycopg import sql
from pytest_django.live_server_helper import LiveServer

from django_pgjobs.admin.overview import live
from django_pgjobs.admin.overview import page as overview
from django_pgjobs.admin.overview.chart import RANGES, SPLITS
from django_pgjobs.admin.overview.page import DEFAULT_RANGE, DEFAULT_SPLIT, read_numbers
from django_pgjobs.bulk import preview
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import Job
from tests.admin.browser import open_page
from tests.admin.bulk_support import address, let_counts_take
from tests.browser.conftest import HOST
from tests.factories import make_job, make_jobs

pytestmark = pytest.mark.django_db(transaction=True)

HOME = "/admin/pgjobs/"
READY = "#pgjobs-live .pgjobs-tiles li:first-child .pgjobs-tile-number"
# For what the page may hold on other days.
ADD = """
const live = document.querySelector("#pgjobs-live");
const add = (html) => { live.insertAdjacentHTML("beforeend", html); return live.lastChild; };
"""
PAUSED = "Paused while you read or choose."


@pytest.fixture
def page(browser: Any, site: LiveServer, people: dict[str, Any]) -> Iterator[Any]:
    """The Overview with two ready jobs, its clock stopped."""
    make_jobs(2)
    with (
        modify_settings(ALLOWED_HOSTS={"append": HOST}),
        open_page(browser, site.url, people["admin"]) as window,
    ):
        window.clock.install()
        window.goto(HOME)
        yield window


def look_again(page: Any) -> None:
    """Let the seconds pass after which the page is asked for again."""
    page.clock.run_for(5_100)


def expect_ready(page: Any, number: int) -> None:
    """Wait until the page shows this many ready jobs."""
    page.wait_for_function(
        "([place, text]) => document.querySelector(place).textContent.trim() === text",
        arg=[READY, str(number)],
        timeout=5_000,
        polling=20,
    )


def requests_of(page: Any) -> list[str]:
    """Return the list of addresses that the page asks for from now on."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    return asked


def test_new_numbers_come_without_a_reload(page: Any) -> None:
    page.evaluate("window.isTheSame = true")
    make_jobs(3)
    look_again(page)
    expect_ready(page, 5)
    assert page.evaluate("window.isTheSame") is True


def test_what_somebody_reads_does_not_move(page: Any) -> None:
    page.set_viewport_size({"width": 800, "height": 300})
    place = "#pgjobs-workers-title"
    page.locator(place).evaluate("element => element.scrollIntoView()")
    before = page.locator(place).bounding_box()["y"]
    # New queues and a warning make the page longer above it.
    for number in range(6):
        make_jobs(1, queue_name=f"queue-{number}")
    look_again(page)
    expect_ready(page, 8)
    assert page.locator(place).bounding_box()["y"] == pytest.approx(before, abs=2)


@pytest.mark.parametrize(
    "occupy",
    [
        "document.querySelector('#pgjobs-live a').focus()",
        "getSelection().selectAllChildren(document.querySelector('#pgjobs-live h2'))",
        "add('<input type=checkbox>').checked = true",
        "add('<textarea>').value = 'half a sentence'",
    ],
    ids=["link", "selection", "tick", "text"],
)
def test_it_pauses_while_one_is_busy_and_says_so(page: Any, occupy: str) -> None:
    page.evaluate(f"() => {{ {ADD} {occupy} }}")
    asked = requests_of(page)
    make_jobs(3)
    look_again(page)
    page.get_by_text(PAUSED).wait_for(timeout=5_000)
    assert asked == []
    assert page.locator(READY).text_content().strip() == "2"


def test_the_focus_on_a_table_that_scrolls_is_nothing_to_wait_for(page: Any) -> None:
    page.evaluate("document.querySelector('#pgjobs-live .pgjobs-scroll').focus()")
    make_jobs(3)
    look_again(page)
    expect_ready(page, 5)
    assert page.evaluate("document.activeElement.className") == "pgjobs-scroll"


def test_details_stay_open_while_the_page_goes_on(page: Any) -> None:
    """The newest attempt of a job is open from the start, an older one is opened by hand."""
    errors = [
        {"attempt": number, "exception_class": "a.Failed", "message": f"number {number}"}
        for number in (1, 2)
    ]
    due = sql.SQL("now() + interval '1 hour'")
    job_id = make_job("tests.tasks.add", attempts=2, due_at=due, errors=errors)
    page.goto(f"/admin/pgjobs/job/{job_id}/change/")
    attempt = page.locator(".pgjobs-attempt", has_text="number 1")
    attempt.locator("summary").click()
    newest = page.locator(".pgjobs-attempt", has_text="number 2")
    newest.locator("summary").click()
    Job.objects.filter(pk=job_id).update(note="something new")
    look_again(page)
    page.get_by_text("something new").first.wait_for(timeout=5_000)
    assert attempt.get_attribute("open") is not None
    assert newest.get_attribute("open") is None
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_what_the_pointer_rests_on_stays_under_it(page: Any) -> None:
    """The page grows above a link, and the link still is where it was."""
    page.set_viewport_size({"width": 800, "height": 300})
    link = page.locator("#pgjobs-workers-title a")
    link.evaluate("element => element.scrollIntoView()")
    link.hover()
    before = link.bounding_box()["y"]
    for number in range(6):
        make_jobs(1, queue_name=f"queue-{number}")
    look_again(page)
    expect_ready(page, 8)
    assert link.bounding_box()["y"] == pytest.approx(before, abs=2)
    assert page.locator("#pgjobs-live-note").text_content() == ""


def test_no_other_button_comes_under_the_pointer(page: Any) -> None:
    """What it rests on is gone in the new page, which has something else in its place."""
    wide = '<a href="?{0}" class="pgjobs-small">{0}: a link that is wide enough</a>'
    page.evaluate(
        "html => { const live = document.querySelector('#pgjobs-live'); live.innerHTML = html; }",
        wide.format("first"),
    )
    html = f'<div id="pgjobs-live">{wide.format("second")}</div>'
    page.route(
        "**/job/overview/**", lambda route: route.fulfill(body=html, content_type="text/html")
    )
    page.locator("#pgjobs-live a").hover()
    look_again(page)
    page.get_by_text(PAUSED).wait_for(timeout=5_000)
    assert "first" in page.locator("#pgjobs-live a").text_content()
    page.mouse.move(5, 5)
    look_again(page)
    page.get_by_text("second: a link").wait_for(timeout=5_000)


def test_the_switch_is_remembered(page: Any) -> None:
    page.get_by_label("Live", exact=True).uncheck()
    asked = requests_of(page)
    look_again(page)
    assert asked == []
    page.reload()
    assert not page.get_by_label("Live", exact=True).is_checked()
    make_jobs(3)
    page.get_by_label("Live", exact=True).check()
    expect_ready(page, 5)


def test_nothing_new_is_answered_in_a_few_bytes(page: Any, monkeypatch: Any) -> None:
    """New would be the half minute, the minute of the chart, or that a statement takes too long."""
    monkeypatch.setattr(live, "CLOCK_SECONDS", 10**12)
    numbers = read_numbers(RANGES[DEFAULT_RANGE], SPLITS[DEFAULT_SPLIT])
    monkeypatch.setattr(overview, "read_numbers", lambda *_: numbers)
    answers = []
    for _ in range(3):
        with page.expect_response("**/job/overview/**") as answer:
            look_again(page)
        answers.append(answer.value.status)
    assert answers == [200, 304, 304]


def test_whoever_was_logged_out_is_told(page: Any) -> None:
    User.objects.update(password="another")
    look_again(page)
    page.get_by_text("No longer refreshed").wait_for(timeout=5_000)
    asked = requests_of(page)
    look_again(page)
    assert asked == []


def test_an_error_is_told_and_tried_again(page: Any) -> None:
    page.route("**/job/overview/**", lambda route: route.fulfill(status=500))
    look_again(page)
    page.get_by_text("Not refreshed").wait_for(timeout=5_000)
    page.unroute("**/job/overview/**")
    make_jobs(3)
    page.clock.run_for(10_100)
    expect_ready(page, 5)
    assert page.locator("#pgjobs-live-note").text_content() == ""


def test_a_page_that_is_done_is_not_asked_for_again(page: Any) -> None:
    html = '<div id="pgjobs-live" data-pgjobs-done><p>That was all.</p></div>'
    page.route(
        "**/job/overview/**", lambda route: route.fulfill(body=html, content_type="text/html")
    )
    look_again(page)
    page.get_by_text("That was all.").wait_for(timeout=5_000)
    asked = requests_of(page)
    look_again(page)
    assert asked == []


@pytest.fixture
def unfinished(page: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A browser, and finished jobs that take too long to count for a page that is there at once."""
    monkeypatch.setattr(preview, "MAX_COUNTED", 2)
    monkeypatch.setattr(preview, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(preview, "LEAST_SECONDS", 0.001)
    let_counts_take(monkeypatch, 0.1)
    make_jobs(5, status="successful", finished_at=sql.SQL("now()"))
    page.evaluate("localStorage.setItem('pgjobs.live', 'off')")
    return page


def test_what_took_too_long_to_count_comes_by_itself(unfinished: Any) -> None:
    """At once, with the switch off: there is none on this page."""
    unfinished.goto(address("delete", Selection({"status": "successful"})))
    unfinished.get_by_text("5 jobs.").wait_for(timeout=5_000)
    assert unfinished.get_by_text("Count all").count() == 0
    assert unfinished.get_by_role("button", name="Delete: 5 jobs").count() == 1


def test_the_count_waits_for_who_writes_a_reason(unfinished: Any) -> None:
    where = address("delete", Selection({"status": "successful"}))
    unfinished.route("**&count=1", lambda route: route.abort())
    unfinished.goto(where)
    unfinished.get_by_label("Reason").fill("too old")
    unfinished.unroute("**&count=1")
    look_again(unfinished)
    assert unfinished.get_by_label("Reason").input_value() == "too old"
    assert unfinished.get_by_text("Count all").count() == 1


def test_a_list_says_what_is_new_and_does_not_jump(page: Any) -> None:
    page.goto("/admin/pgjobs/job/")
    assert not page.locator("#pgjobs-new").is_visible()
    make_jobs(3)
    look_again(page)
    page.locator("#pgjobs-new").wait_for(timeout=5_000)
    assert "3" in page.locator("#pgjobs-new").text_content()
    assert page.locator("#result_list tbody tr").count() == 2


def test_nothing_is_refused_by_a_strict_policy(page: Any) -> None:
    """No inline style or script: what a browser would refuse, it reports."""
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    make_jobs(3)
    look_again(page)
    expect_ready(page, 5)
    page.reload()
    assert [text for text in refused if "Content Security Policy" in text] == []
