"""A claim that the server has refused, made in smaller ones: the steps of `careful.in_pages`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from django_pgjobs.queries import claims
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.sends import Send
from django_pgjobs.worker.claiming.claim_statements import statements_of, timed
from django_pgjobs.worker.claiming.keyed_claim import ClaimStatements, KeyedClaim
from django_pgjobs.worker.claiming.plan import Claim, Plan


class CarefulClaim:
    """Takes what is left of *claim*, some jobs at a time or one that was found.

    *taker* tells who takes jobs for a plan, and which are passed over.
    """

    def __init__(
        self,
        connection: OwnConnection,
        claim: Claim,
        taker: Callable[[Plan, list[int]], claims.Taker],
    ) -> None:
        self._connection = connection
        self._claim = claim
        self._taker = taker
        # In turn with others who meet the same row: who did without would not get to find it.
        self._hold: list[Send] = [partial(claims.send_hold, waits=True)] if claim.plan.holds else []
        # The one job that was found, chosen but not taken.
        self._found: KeyedClaim | None = None

    def take(self, size: int, passed_over: list[int]) -> Sequence[claims.ClaimedRow]:
        """Take so many jobs at most, but none of those to pass over."""
        plan = self._claim.plan.after(self._claim.rows, size)
        return self._send(self._hold, statements_of(plan, self._taker(plan, passed_over)))

    def find(self, passed_over: list[int]) -> dict[int, str]:
        """Lock the job that would be taken first; return its id and task."""
        plan = replace(self._claim.plan.after(self._claim.rows, 1), skips_locked=True)
        self._found = KeyedClaim(plan.scope, self._taker(plan, passed_over))
        sends = [*self._hold, *self._found.statements.before, self._found.send_first]
        return dict(self._connection.round_trip(sends)[-1])

    def take_found(self) -> Sequence[claims.ClaimedRow]:
        """Take the job that was found, whatever goes before it by now."""
        return self._send([], self._found.narrow()) if self._found else []

    def _send(self, hold: list[Send], statements: ClaimStatements) -> Sequence[claims.ClaimedRow]:
        before = [*hold, *statements.before]
        sends = [*before, timed(self._claim, statements.take), *statements.after]
        rows = self._connection.round_trip(sends)[len(before)]
        return claims.claimed_rows(rows, self._claim.asked_at)
