"""Comparing what is shown with what plain SQL finds, at whatever pace the test runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any, TypeVar

from django.db import connection

Found = TypeVar("Found")


def query(text: str, *params: Any) -> list[tuple[Any, ...]]:
    """Return what a statement finds."""
    with connection.cursor() as cursor:
        cursor.execute(text, params or None)
        return list(cursor.fetchall())


def steady(wanted: Callable[[], Found], shown: Callable[[], Any]) -> tuple[Found, Any]:
    """Return what is wanted and what is shown of one time.

    What a page covers begins a minute later when one has passed. So the page is read again if what
    is wanted changed meanwhile.
    """
    while True:
        before, found = wanted(), shown()
        if wanted() == before:
            return before, found


def between(clock: Callable[[], float], shown: Callable[[], float]) -> None:
    """Check an age in seconds, by one that is asked for before and after."""
    least, found, most = clock(), shown(), clock()
    # What is shown passed through seconds since 1970, whose parts a float rounds.
    assert least - 0.001 <= found <= most + 0.001


def cells(text: str) -> list[list[str]]:
    """Return the texts of the cells of all rows of a page's tables."""
    rows = re.findall(r"<tr.*?</tr>", text, re.DOTALL)
    return [
        [plain(cell) for cell in re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]


def facts(text: str) -> dict[str, str]:
    """Return the facts of a page by their names."""
    found = re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", text, re.DOTALL)
    return {plain(name): plain(value) for name, value in found}


def plain(text: str) -> str:
    """Return a text without tags, on one line."""
    whole = text.replace("<wbr>", "")
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", whole)).split())
