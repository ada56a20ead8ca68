"""Every page fits a telephone and a right-to-left script, and keeps to a strict policy.

The policy (tests/browser/policy.py) allows no inline script or style and no other site; what
breaks it is said on the console, which `open_window` reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test.utils import override_settings
from pytest_django.live_server_helper import LiveServer

from tests.admin.browser import open_page
from tests.browser.conftest import HOST, Installation
from tests.browser.pages import PAGES
from tests.browser.windows import Watch, find_cut, find_widest, is_too_wide

pytestmark = pytest.mark.django_db

NARROW = 390
IN_HEBREW = [
    "overview", "jobs, all", "jobs, failed", "job, failed", "job, ready", "copy", "failures",
    "queues", "queue", "workers", "limits", "system", "bulk, requeue", "bulk change",
]  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_a_page_and_its_tables_fit_a_telephone(
    installation: Installation, open_window: Callable[..., Any], name: str
) -> None:
    """In German, whose words are the longer ones."""
    window = open_window(width=NARROW, language="de")
    window.goto(installation.addresses[name])
    assert not is_too_wide(window), find_widest(window)
    assert find_cut(window) == []


@pytest.mark.parametrize("name", IN_HEBREW)
def test_a_page_is_drawn_from_right_to_left(
    installation: Installation, open_window: Callable[..., Any], name: str
) -> None:
    window = open_window(language="he", width=NARROW)
    window.goto(installation.addresses[name])
    assert window.locator("html").get_attribute("dir") == "rtl"
    assert not is_too_wide(window), find_widest(window)
    window.set_viewport_size({"width": 1400, "height": 1000})
    assert not is_too_wide(window), find_widest(window)
    first, second = (window.locator(".pgjobs-nav li").nth(place) for place in (0, 1))
    assert first.bounding_box()["x"] > second.bounding_box()["x"]


# Where the lines of elements end: what is before and behind each such place.
LINE_ENDS = """all => all.map(element => {
    const nodes = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), found = [];
    let top = null;
    for (let node = nodes.nextNode(); node; node = nodes.nextNode())
        [...node.data].forEach((sign, place) => {
            const range = document.createRange();
            range.setStart(node, place);
            range.setEnd(node, place + 1);
            const rect = range.getClientRects()[0];
            // A space at the end of a line has no width.
            if (!rect || !rect.width) return;
            if (top !== null && rect.top > top + 2)
                found.push(`${node.data.slice(0, place)}|${node.data.slice(place)}`);
            top = rect.top;
        });
    return found;
}).flat()"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("workers", ".pgjobs-held a"),
        ("jobs, all", "#result_list .pgjobs-task"),
        ("job, ready", ".pgjobs-why li"),
        ("history", "#content h1"),
        ("system", ".pgjobs-scroll th, .pgjobs-scroll td:not(:has(code))"),
    ],
)
def test_paths_of_tasks_and_names_break_between_words(
    installation: Installation,
    open_window: Callable[..., Any],
    name: str,
    places: str,
    dark: bool,
) -> None:
    window = open_window(width=NARROW, dark=dark)
    window.goto(installation.addresses[name])
    window.locator("details").evaluate_all("all => all.forEach(each => each.open = true)")
    ends = window.locator(places).evaluate_all(LINE_ENDS)
    assert ends, "none is long: nothing is checked"
    assert [end for end in ends if re.search(r"[^\W_]\|\w", end)] == []


# How many rows the entries of a list of tabs take, and whether the current one is in sight.
ROWS = """list => {
    const {left, right} = list.getBoundingClientRect(), entries = [...list.children];
    const current = list.querySelector("[aria-current]").getBoundingClientRect();
    const isSeen = current.left >= left - 1 && current.right <= right + 1;
    return [new Set(entries.map(entry => entry.offsetTop)).size, isSeen];
}"""


@pytest.mark.parametrize("language", ["en", "de", "he"])
@pytest.mark.parametrize("name", ["overview", "system", "jobs, all", "jobs, successful"])
def test_tabs_take_one_row_of_a_telephone_and_show_the_current_one(
    installation: Installation, open_window: Callable[..., Any], name: str, language: str
) -> None:
    window = open_window(width=NARROW, language=language)
    window.goto(installation.addresses[name])
    lists = window.locator(".pgjobs-nav ul, .pgjobs-tabs ul")
    assert lists.count() == 1 + name.startswith("jobs")
    assert lists.evaluate_all(f"lists => lists.map({ROWS})") == [[1, True]] * lists.count()


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_search_of_workflows_is_one_line(
    installation: Installation, open_window: Callable[..., Any], language: str
) -> None:
    window = open_window(width=1280, language=language)
    window.goto(installation.addresses["workflows"])
    search = window.locator("form.pgjobs-search")
    field, button = search.locator("input[name=q]"), search.locator("button")
    assert button.bounding_box()["y"] < field.bounding_box()["y"] + field.bounding_box()["height"]
    assert field.bounding_box()["width"] >= 100


# How the background of a box moves with what is in it, and whether all rows let it through.
SHADES = """box => {
    const css = getComputedStyle(box), rows = [...box.querySelectorAll("tr")];
    const isOpaque = row => getComputedStyle(row).backgroundColor.startsWith("rgb(");
    return [css.backgroundAttachment, rows.length > 1 && !rows.some(isOpaque)];
}"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["jobs, all", "queues", "failures", "workers"])
def test_a_table_that_is_cut_off_has_a_shade_at_its_edge(
    installation: Installation, open_window: Callable[..., Any], name: str, dark: bool
) -> None:
    """One that scrolls with the table covers it at the end; no row hides it."""
    window = open_window(width=NARROW, dark=dark)
    window.goto(installation.addresses[name])
    boxes = window.locator(".pgjobs-scroll, #changelist-form .results")
    assert boxes.count()
    for attachment, is_seen in boxes.evaluate_all(f"boxes => boxes.map({SHADES})"):
        assert attachment == "local, local, scroll, scroll"
        assert is_seen


# The times in tables that do not fit a line.
BROKEN_TIMES = """times => times
    .filter(time => time.getClientRects().length > 1)
    .map(time => time.closest("td").className + ": " + time.textContent)"""


@pytest.mark.parametrize("width", [NARROW, 1000])
@pytest.mark.parametrize(
    "name",
    ["overview", "queues", "bulk, requeue", "bulk changes", "system", "workflow", "row with jobs"],
)
def test_a_time_in_a_table_is_one_line(
    installation: Installation, open_window: Callable[..., Any], name: str, width: int
) -> None:
    window = open_window(width=width)
    window.goto(installation.addresses[name])
    assert window.locator("td time").evaluate_all(BROKEN_TIMES) == []


def test_twelve_failed_jobs_are_in_sight(
    installation: Installation, open_window: Callable[..., Any]
) -> None:
    """With all columns, however long their numbers are; of the error there is one line, and all of
    it as its title.
    """
    window = open_window(width=1280)
    window.set_viewport_size({"width": 1280, "height": 900})
    window.goto(installation.addresses["jobs, failed"])
    numbers = window.locator("#result_list .field-job_column small")
    assert numbers.count() == 12
    numbers.evaluate_all("all => all.forEach(each => each.textContent = '#1234567890123')")
    bottoms = window.locator("#result_list tbody tr").evaluate_all(
        "rows => rows.map(row => row.getBoundingClientRect().bottom)"
    )
    assert len(bottoms) == 12
    assert max(bottoms) <= 900
    assert window.locator("#changelist-form .results").evaluate(
        "box => box.scrollWidth <= box.clientWidth"
    )
    errors = window.locator("#result_list .pgjobs-bad[title]")
    assert errors.count() >= 12
    assert "violates unique constraint (id)=(" in str(
        errors.evaluate_all("all => all.map(each => each.title).join()")
    )


def test_the_filters_are_folded_away_and_say_what_is_chosen(
    installation: Installation, open_window: Callable[..., Any]
) -> None:
    window = open_window()
    window.goto(installation.addresses["jobs, failed"])
    assert not window.get_by_label("Queue", exact=True).is_visible()
    window.locator(".pgjobs-filters summary").focus()
    window.keyboard.press("Enter")
    window.get_by_label("Queue", exact=True).fill("mail")
    window.keyboard.press("Enter")
    window.wait_for_url("**queue=mail**")
    assert not window.get_by_label("Queue", exact=True).is_visible()
    assert "mail" in window.locator(".pgjobs-filters summary").inner_text()


def test_the_policy_is_in_force(installation: Installation, browser: Any, site: LiveServer) -> None:
    """Else the other tests show nothing."""
    allowed = override_settings(ALLOWED_HOSTS=[HOST])
    with allowed, open_page(browser, site.url, installation.cookies["admin"]) as window:
        watch = Watch(window, site.url)
        window.goto(installation.addresses["overview"])
        assert not watch.troubles
        window.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=\"top: 0\">')")
        window.evaluate("fetch('https://elsewhere.example/').catch(() => {})")
    assert any("inline style" in trouble for trouble in watch.troubles)
    assert any("elsewhere.example" in trouble for trouble in watch.troubles)
