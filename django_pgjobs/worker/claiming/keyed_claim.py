"""A claim of jobs with keys: list what may start, choose, take what was chosen and its tokens.

The choice needs the answer to the first statement, so the claim takes a round trip more; the right
to claim jobs with keys is held meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from django_pgjobs.choosing import Candidate, choose
from django_pgjobs.queries import claims
from django_pgjobs.queries.claims import Floor, Lane, Scope, Taker
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.sends import Question, Send


class ClaimStatements(NamedTuple):
    """The statements of a claim: the one that takes jobs, and what goes before and after it."""

    before: list[Send]
    take: Send
    after: list[Send]
    # Where is noted what was chosen, if it is chosen before it is taken.
    keyed: KeyedClaim | None = None

    @property
    def sends(self) -> list[Send]:
        """All of them, in order."""
        return [*self.before, self.take, *self.after]


class KeyedClaim:
    """The statements of one such claim, in order; what was chosen is there for the last one."""

    def __init__(self, scope: Scope, taker: Taker) -> None:
        self._scope = scope
        self._taker = taker
        self.chosen: list[Candidate] = []

    @property
    def statements(self) -> ClaimStatements:
        heads = Question(self.send_heads, self.choose)
        return ClaimStatements([heads], self.send_chosen, [self.send_spending], keyed=self)

    def send_heads(self, cursor: Cursor) -> None:
        claims.send_heads(cursor, self._scope, self._taker)

    def choose(self, rows: list[Any]) -> None:
        """Choose of the rows of list_heads.sql."""
        heads = claims.heads_of(rows)
        scope = self._scope
        self.chosen = choose(heads, wanted=scope.max_jobs, slots=scope.slots, rooms=scope.rooms)

    def send_chosen(self, cursor: Cursor) -> None:
        claims.send_chosen_claim(cursor, self.chosen, self._scope, self._taker)

    def send_spending(self, cursor: Cursor) -> None:
        claims.send_spending(cursor, self.chosen, self._taker)

    def narrow(self) -> ClaimStatements:
        """Return the statements that take the only job that was chosen, and none before it."""
        for job in self.chosen:
            head, boosts = job.head, self._scope.boosts
            lane = Lane(head.backend, head.queue_name, head.is_async)
            floor = Floor(head.rank + boosts.get(head.queue_name, 0), job.id)
            self._scope = replace(self._scope, floors={lane: floor})
        return ClaimStatements([], self.send_chosen, [self.send_spending], keyed=self)

    def send_first(self, cursor: Cursor) -> None:
        """Send the question which of the chosen jobs would be claimed first."""
        claims.send_first_free(cursor, [job.id for job in self.chosen])
