"""Working around rows that the server refuses to change.

A statement on many rows fails if one of them does: a trigger or a CHECK of the project raises, a
value is out of range, a page is corrupt. Then it is sent for fewer rows, and in the end for one;
what is refused alone is passed over, and everything else is done. Nothing is remembered here: the
caller decides how long a row is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import psycopg

from django_pgjobs.queries.errors import Trouble, trouble_of

# A refused page is followed by one of so many times fewer rows, and the other way round.
STEP = 8
# After so many conflicts in a row, other workers are not their cause.
MAX_CROSSED = 20

T = TypeVar("T")
Refused = Callable[[T, psycopg.Error], None]


def in_pages(
    act: Callable[[int, list[int]], Sequence[T]],
    *,
    size: int,
    find: Callable[[list[int]], Sequence[int]],
    on_refused: Refused[int],
    known: Sequence[int] = (),
    patience: int | None = None,
) -> Iterator[Sequence[T]]:
    """Yield what *act* returns, page by page, until one is not full.

    *act* is given how many rows to take at most and the ids of those to pass over: those *known*
    before, and what is refused on the way. *find* returns the row that it would take first: the
    one that is refused if a page of one is. With *patience* the pages end after so many of them.
    """
    passed_over, page, crossed = list(known), size, 0
    while True:
        try:
            rows = act(page, passed_over)
        except psycopg.Error as error:
            trouble = trouble_of(error)
            if trouble is Trouble.LOST:
                raise
            crossed = crossed + 1 if trouble is Trouble.CROSSED else 0
            if page > 1 or 0 < crossed < MAX_CROSSED:
                page = max(1, page // STEP)
                continue
            if patience is not None and len(passed_over) - len(known) >= patience:
                return
            found = [row_id for row_id in find(passed_over) if row_id not in passed_over]
            if not found:
                raise
            passed_over += found
            for row_id in found:
                on_refused(row_id, error)
        else:
            yield rows
            if len(rows) < page:
                return
            page, crossed = min(size, page * STEP), 0


def by_halves(
    items: Sequence[T], act: Callable[[Sequence[T]], None], *, on_refused: Refused[T]
) -> None:
    """Let *act* work on all items; where the server refuses, on halves of them."""
    try:
        act(items)
    except psycopg.Error as error:
        if trouble_of(error) is Trouble.LOST:
            raise
        if len(items) == 1:
            on_refused(items[0], error)
            return
        middle = len(items) // 2
        by_halves(items[:middle], act, on_refused=on_refused)
        by_halves(items[middle:], act, on_refused=on_refused)
