"""One round trip of the pump, and what it learned from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_pgjobs.queries.claims import ClaimedRow, Ready
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.worker.completer import Entry

Rows = list[Any]


class Turn:
    """The statements of one round trip, each with what is to be done with its rows."""

    def __init__(self, worker_id: int) -> None:
        self.worker_id = worker_id
        self.sends: list[Callable[[Cursor], None]] = []
        self.receivers: list[Callable[[Rows], None]] = []
        # What was written: the outcomes sent, and the ids of the jobs that changed.
        self.batch: list[Entry] = []
        self.written: set[int] = set()
        # What was found.
        self.looks = False
        self.scans = False
        self.claims = False
        self.claimed: list[ClaimedRow] = []
        self.lanes: list[Ready] | None = None
        # How long the round trip took, the wait for the turn to claim not counted.
        self.seconds = 0.0
        self.freed: set[str] = set()
        # Jobs with keys: were they asked for, was it this worker's turn to claim them, and which
        # of the statements asked for that turn?
        self.walks = False
        self.holds = False
        self.hold_place: int | None = None
        # A claim that took little of each lane has not filled the batch: there may be more.
        self.falls_short = False
        self.token_wait: float | None = None
        self.leaves_unknown = False
        # How many writes were counted before the claim, and are those more than before?
        self.changes: int | None = None
        self.changed = False
        # A look that found where jobs are without claiming any: nobody told.
        self.missed = False
        self.promoted = 0
        self.next_due: float | None = None

    def add(self, send: Callable[[Cursor], None], receive: Callable[[Rows], None]) -> None:
        """Let a statement travel with this turn."""
        self.sends.append(send)
        self.receivers.append(receive)

    def note_time(self, seconds: float, answers: list[Rows]) -> None:
        """Note how long the round trip took."""
        held = [] if self.hold_place is None else answers[self.hold_place]
        waited = held[0][1] if held else 0.0
        self.seconds = max(0.0, seconds - waited)

    def receive(self, answers: list[Rows]) -> None:
        """Hand each statement's rows to whoever waits for them."""
        for receive, rows in zip(self.receivers, answers, strict=True):
            receive(rows)

    def delays_of_returned(self) -> list[float]:
        """Return the seconds until each job that was given back is due."""
        return [outcome.delay or 0.0 for _, outcome in self.batch if outcome.status is None]
