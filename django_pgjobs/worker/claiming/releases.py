"""Releasing jobs that waited for those that have ended.

It follows the outcomes, in the same turn. If many wait for one job, each turn releases a page of
them, and the worker's outcomes and claims go on in between. What is left when the worker ends, when
an answer is lost, or where the server refuses something, is found by the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import psycopg

from django_pgjobs.queries import dependencies
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.turns.turn import Rows, Turn


class Releases:
    """Releases the jobs that waited for those that the pump has finished, page by page."""

    def __init__(self, on_released: Callable[[list[str]], None]) -> None:
        self._on_released = on_released
        # Where the next page begins; None if nothing is under way.
        self._rest: list[dependencies.Position] | None = None

    @property
    def are_under_way(self) -> bool:
        """Are jobs still to be released, or is the answer to that on its way?"""
        return self._rest is not None

    def plan(self, turn: Turn, ended: Sequence[Attempt]) -> None:
        """Add the next page to the turn, first the jobs that wait for what the turn finishes."""
        if ended or self.are_under_way:
            # From here on, because outcomes may count as written before this is sent.
            self._rest = self._rest or []
            ids = [attempt.id for attempt in ended]
            turn.begin(self._leave).add(partial(self._send, ids=ids), self._note)

    def _send(self, cursor: Cursor, ids: Sequence[int]) -> None:
        dependencies.send_resolution(cursor, ids, self._rest or [])

    def _note(self, rows: Rows) -> None:
        self._on_released([queue for queue, *_ in rows if queue is not None])
        self._rest = dependencies.rest_of(rows) or None

    def _leave(self, error: psycopg.Error) -> None:
        self._rest = None
        raise error
