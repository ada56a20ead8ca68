"""One round trip: statements, each with the function that receives its rows.

Planning a turn forgets nothing: what a thread knows changes with the answers, so that
a turn that fails loses nothing. Outcomes that were taken for it are put back then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from django_pgjobs.queries.sends import Send

Rows = list[Any]
Receive = Callable[[Rows], None]


def give_up(error: psycopg.Error) -> None:
    """Raise the error: there is no way around the refused row."""
    raise error


@dataclass
class Part:
    """Statements that belong together, and what to do if the server refuses one of them."""

    on_refused: Callable[[psycopg.Error], None] = give_up
    sends: list[Send] = field(default_factory=list)
    receivers: list[Receive] = field(default_factory=list)

    def add(self, send: Send, receive: Receive) -> None:
        """Add a statement to this part; *receive* gets its rows."""
        self.sends.append(send)
        self.receivers.append(receive)

    def receive(self, answers: Sequence[Rows]) -> None:
        """Hand each statement's rows to whoever waits for them."""
        for receive, rows in zip(self.receivers, answers, strict=True):
            receive(rows)


class Turn:
    """The parts of one round trip."""

    def __init__(self, worker_id: int) -> None:
        self.worker_id = worker_id
        self.parts: list[Part] = []
        # Were its parts sent one by one? If not, how long did the round trip take?
        self.was_apart = False
        self.elapsed = 0.0

    @property
    def sends(self) -> list[Send]:
        """The statements, in order."""
        return [send for part in self.parts for send in part.sends]

    def begin(self, on_refused: Callable[[psycopg.Error], None] = give_up) -> Part:
        """Return a new part, for statements that belong together."""
        self.parts.append(Part(on_refused))
        return self.parts[-1]

    def add(self, send: Send, receive: Receive) -> None:
        """Add a statement to this turn that belongs to no other."""
        self.begin().add(send, receive)

    def receive(self, answers: Sequence[Rows]) -> None:
        """Hand each statement's rows to whoever waits for them."""
        place = 0
        for part in self.parts:
            part.receive(answers[place : place + len(part.sends)])
            place += len(part.sends)
