"""Beside the open sidebar, at 1280 by 900, all columns of all tables are in sight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Installation
from tests.browser.pages import PAGES
from tests.browser.windows import find_cut, find_widest, is_too_wide

pytestmark = pytest.mark.django_db

WIDTH, HEIGHT = 1280, 900
# Tables with so many columns that the words of a language decide whether they fit.
SHARED = ["overview", "queues", "schedules", "workers"]
# Other words than ours: heads, states, what can be done and times are as long as this.
REPLACE = """() => {
    const table = document.querySelector(".pgjobs-shared"), word = "w".repeat(40);
    table.querySelectorAll("thead th, .pgjobs-status, .pgjobs-row a, .pgjobs-row button, time")
        .forEach(each => { each.textContent = `${word} ${word}`; });
}"""
# The texts that are drawn over other columns, or beyond the edge.
OVERLAPS = """() => [...document.querySelectorAll(".pgjobs-shared :is(th, td)")]
    .filter(cell => cell.scrollWidth > cell.clientWidth + 1)
    .map(cell => cell.innerText)"""


def open_wide(open_window: Callable[..., Any], language: str) -> Any:
    """Open a window in which the sidebar leaves the least room."""
    window = open_window(width=WIDTH, language=language)
    window.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    return window


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize("name", PAGES)
def test_no_column_is_cut_off(
    installation: Installation, open_window: Callable[..., Any], name: str, language: str
) -> None:
    window = open_wide(open_window, language)
    window.goto(installation.addresses[name])
    assert find_cut(window) == []
    assert not is_too_wide(window), find_widest(window)


@pytest.mark.parametrize("name", SHARED)
def test_no_word_of_a_language_is_too_long(
    installation: Installation, open_window: Callable[..., Any], name: str
) -> None:
    window = open_wide(open_window, "de")
    window.goto(installation.addresses[name])
    assert window.locator("#nav-sidebar").bounding_box()["width"] > 200
    assert window.evaluate(OVERLAPS) == []
    window.evaluate(REPLACE)
    assert find_cut(window) == []
    assert window.evaluate(OVERLAPS) == []
