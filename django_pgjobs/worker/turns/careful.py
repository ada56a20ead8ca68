"""Working around rows that the server refuses to change.

A statement on many rows fails if one of them does: a trigger or a CHECK of the project raises, a
value is out of range, a page is corrupt. Then it is sent for fewer rows, and in the end for one;
what is refused alone is passed over, and everything else is done. Nothing is remembered here: the
caller decides how long a row is left alone.

The row is found and locked before the statement is sent for it alone, in the same transaction: no
other can take it in between. One that goes before it may be committed in between, and be what was
refused then; so a row is to blame that was found twice in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import psycopg

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of

# A refused page is followed by one of so many times fewer rows, and the other way round.
STEP = 8
# After so many conflicts in a row, other workers are not their cause.
MAX_CROSSED = 20
# So often the row is looked for that a statement was refused for.
MOST_FINDS = 20

T = TypeVar("T")
Refused = Callable[[T, psycopg.Error], None]
# Takes so many rows at most, but none of these.
Act = Callable[[int, list[int]], Sequence[T]]
# Locks the first row that is none of these.
Find = Callable[[list[int]], Sequence[int]]


def in_pages(
    connection: OwnConnection,
    act: Act[T],
    *,
    size: int,
    find: Find,
    on_refused: Refused[int],
    take_found: Callable[[], Sequence[T]] | None = None,
    known: Sequence[int] = (),
    patience: int | None = None,
) -> Iterator[Sequence[T]]:
    """Yield what *act* returns, page by page, until one is not full.

    *act* is given how many rows to take at most, and the ids of those to pass over: those *known*
    before, and what is refused. *find* locks the row that *act* would take first and returns its
    id; *take_found*, or *act*, takes it. With *patience* the pages end after so many refused rows.
    """
    passed_over, page, crossed = list(known), size, 0
    take_one = partial(_take_one, connection, find, take_found or partial(act, 1, passed_over))
    while patience is None or len(passed_over) - len(known) < patience:
        found: list[int] = []
        try:
            rows = act(page, passed_over) if page > 1 else take_one(passed_over, found)
        except psycopg.Error as error:
            if (trouble := trouble_of(error)) in (Trouble.LOST, Trouble.MISFIT):
                raise
            crossed = crossed + 1 if trouble is Trouble.CROSSED else 0
            if page > 1 or 0 < crossed < MAX_CROSSED:
                page = max(1, page // STEP)
                continue
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


def _take_one(
    connection: OwnConnection,
    find: Find,
    take: Callable[[], Sequence[T]],
    passed_over: list[int],
    found: list[int],
) -> Sequence[T]:
    """Find a row and take it; note in *found* which it is before.

    What is refused is tried until the same row has been found twice in a row; nothing is noted if
    that takes too long.
    """
    tries = 0
    while True:
        tries += 1
        suspected = found[:]
        found.clear()
        try:
            with connection.transaction():
                found += find(passed_over)
                return take()
        except psycopg.Error as error:
            if found == suspected or trouble_of(error) is not Trouble.REFUSED:
                raise
            if tries >= MOST_FINDS:
                found.clear()
                raise


def by_halves(
    items: Sequence[T], act: Callable[[Sequence[T]], None], *, on_refused: Refused[T]
) -> None:
    """Let *act* work on all items; where the server refuses, on halves of them."""
    try:
        act(items)
    except psycopg.Error as error:
        trouble = trouble_of(error)
        if trouble is Trouble.LOST:
            raise
        if len(items) == 1 or trouble is Trouble.MISFIT:
            for item in items:
                on_refused(item, error)
            return
        middle = len(items) // 2
        by_halves(items[:middle], act, on_refused=on_refused)
        by_halves(items[middle:], act, on_refused=on_refused)
