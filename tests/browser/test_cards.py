"""On a telephone the rows of wide tables are cards, in which each cell says what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Installation
from tests.browser.windows import find_cut

pytestmark = pytest.mark.django_db

NARROW = 390
WITH_CARDS = [
    "overview", "queues", "queue", "workers", "worker", "schedules", "limits", "tokens",
    "workflows", "workflow", "failures", "system", "bulk, requeue", "bulk changes", "row with jobs",
]  # fmt: skip
# The cells of cards that do not say what the head of their column says. The first one is the
# name of the row, and the wide one in the table of queues explains itself.
WRONG = """() => [...document.querySelectorAll(".pgjobs-cards tbody td")]
    .filter(cell => cell.innerHTML && cell.colSpan === 1 && cell.cellIndex > 0)
    .filter(cell => !cell.matches(".pgjobs-queues .pgjobs-wide"))
    .map(cell => [cell, cell.closest("table").tHead.rows[0].cells[cell.cellIndex]])
    .filter(([cell, head]) => cell.dataset.head !== head.textContent.trim())
    .map(([cell, head]) => `${cell.dataset.head} under ${head.textContent}: ${cell.innerText}`)"""
# Where the cells of the first job in the list begin and end, by their classes.
PLACES = """() => Object.fromEntries([...document.querySelector("#result_list tbody tr").cells]
    .map(cell => [cell.className.replace(/.*field-/, ""), cell.getBoundingClientRect()])
    .map(([name, {left, right, top}]) => [name, [left, right, top]]))"""


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("name", WITH_CARDS)
def test_cells_of_cards_say_what_they_are(
    installation: Installation, open_window: Callable[..., Any], name: str, language: str
) -> None:
    window = open_window(width=NARROW, language=language)
    window.goto(installation.addresses[name])
    assert window.locator(".pgjobs-cards td[data-head]").count()
    assert window.evaluate(WRONG) == []


def test_a_card_has_its_name_above_its_numbers(
    installation: Installation, open_window: Callable[..., Any]
) -> None:
    window = open_window(width=NARROW)
    window.goto(installation.addresses["queues"])
    card = window.locator(".pgjobs-queues tbody tr").first
    name, ready = (card.locator(each).first for each in ("th", "td[data-head]"))
    assert ready.bounding_box()["y"] > name.bounding_box()["y"]
    assert not window.locator(".pgjobs-queues thead").is_visible()
    assert "Ready" in ready.evaluate("cell => getComputedStyle(cell, '::before').content")


def test_a_job_in_the_list_is_a_card_that_can_be_selected(
    installation: Installation, open_window: Callable[..., Any]
) -> None:
    window = open_window(width=NARROW)
    window.goto(installation.addresses["jobs, failed"])
    places = window.evaluate(PLACES)
    job, box = places.pop("job_column"), places.pop("action-checkbox")
    assert box[0] < job[0], "the box is not before the name"
    for name, (left, right, top) in places.items():
        assert left >= job[0], name
        assert right <= NARROW, name
        assert top > job[2], name
    window.locator("#action-toggle").check()
    assert window.locator("input.action-select:checked").count() == 12


@pytest.mark.parametrize("width", [768, 1024, 1100])
@pytest.mark.parametrize("name", ["overview", "jobs, failed", "queues", "workers", "schedules"])
def test_beside_the_sidebar_tables_are_cards_where_they_have_no_room(
    installation: Installation, open_window: Callable[..., Any], name: str, width: int
) -> None:
    window = open_window(width=width, language="de")
    window.goto(installation.addresses[name])
    assert find_cut(window) == []
