"""One round trip of the pump, and what it learned from it.

Planning a turn changes nothing but the turn: what the worker knows changes with the answers, so
that a turn that fails loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from django_pgjobs.queries.claims import ClaimedRow, Ready
from django_pgjobs.worker.completer import Entry, Send

Rows = list[Any]
Receive = Callable[[Rows], None]


def give_up(error: psycopg.Error) -> None:
    """Know no way around what the server refuses."""
    raise error


@dataclass
class Part:
    """Statements that need each other, and what to do if the server refuses them and no others."""

    on_refused: Callable[[psycopg.Error], None] = give_up
    sends: list[Send] = field(default_factory=list)
    receivers: list[Receive] = field(default_factory=list)

    def add(self, send: Send, receive: Receive) -> None:
        """Let a statement travel with this part; *receive* gets its rows."""
        self.sends.append(send)
        self.receivers.append(receive)

    def receive(self, answers: Sequence[Rows]) -> None:
        """Hand each statement's rows to whoever waits for them."""
        for receive, rows in zip(self.receivers, answers, strict=True):
            receive(rows)


class Turn:
    """The statements of one round trip, each with what is to be done with its rows."""

    def __init__(self, worker_id: int) -> None:
        self.worker_id = worker_id
        self.parts: list[Part] = []
        # The outcomes sent, and the ids of the jobs for whose outcomes there is an answer.
        self.batch: list[Entry] = []
        self.answered: set[int] = set()
        # What was found.
        self.looks = False
        self.scans = False
        self.claims = False
        self.claimed: list[ClaimedRow] = []
        self.lanes: list[Ready] | None = None
        # How long the round trip took, and how much of that was the wait for the turn to claim.
        self.elapsed = 0.0
        self.waited = 0.0
        # Jobs with keys: were they asked for, and was it this worker's turn to claim them?
        self.walks = False
        self.holds = False
        self.token_wait: float | None = None
        # A claim that has to be made again at once, by other means.
        self.repeats = False
        # A look that found where jobs are without claiming any: nobody told.
        self.missed = False
        self.promoted = 0
        self.next_due: float | None = None

    @property
    def sends(self) -> list[Send]:
        """The statements, in order."""
        return [send for part in self.parts for send in part.sends]

    @property
    def seconds(self) -> float:
        """How long the round trip took, the wait for the turn to claim not counted."""
        return max(0.0, self.elapsed - self.waited)

    @property
    def unanswered(self) -> list[Entry]:
        """The outcomes that nothing is known of."""
        return [entry for entry in self.batch if entry[0].id not in self.answered]

    def begin(self, on_refused: Callable[[psycopg.Error], None] = give_up) -> Part:
        """Return a new part, for statements that need each other."""
        self.parts.append(Part(on_refused))
        return self.parts[-1]

    def add(self, send: Send, receive: Receive) -> None:
        """Let a statement travel with this turn that needs no other."""
        self.begin().add(send, receive)

    def receive(self, answers: Sequence[Rows]) -> None:
        """Hand each statement's rows to whoever waits for them."""
        place = 0
        for part in self.parts:
            part.receive(answers[place : place + len(part.sends)])
            place += len(part.sends)

    def delays_of_returned(self) -> list[float]:
        """Return the seconds until each job that was given back is due."""
        return [outcome.delay or 0.0 for _, outcome in self.batch if outcome.status is None]
