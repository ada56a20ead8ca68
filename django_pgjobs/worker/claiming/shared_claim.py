"""A claim of jobs without keys of many lanes: ask how many each is to give, then take these.

The question costs a round trip more. Of few lanes the claim finds that out by itself.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from django_pgjobs.queries import shares
from django_pgjobs.queries.claims import Floor, Lane, Scope, Taker
from django_pgjobs.queries.connection import Question
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.worker.claiming.keyed_claim import ClaimStatements


class SharedClaim:
    """The statements of one such claim, in order.

    *heads* takes in where lanes begin that give no job, *wanted* how many the others are to give.
    """

    def __init__(
        self,
        scope: Scope,
        taker: Taker,
        heads: dict[Lane, Floor | None],
        wanted: Counter[Lane],
    ) -> None:
        self._scope = scope
        self._taker = taker
        self._heads = heads
        self._wanted = wanted
        self._shares: list[shares.Share] = []

    @property
    def statements(self) -> ClaimStatements:
        shares = Question(self.send_shares, self.note_shares)
        return ClaimStatements([shares], self.send_take, [])

    def send_shares(self, cursor: Cursor) -> None:
        shares.send_shares(cursor, self._scope, self._taker)

    def note_shares(self, rows: list[Any]) -> None:
        """Note what share_lanes.sql returned."""
        self._shares = shares.shares_of(rows)
        self._heads.update({share.lane: share.head for share in self._shares if not share.jobs})
        self._wanted.update({share.lane: share.jobs for share in self._shares if share.jobs})

    def send_take(self, cursor: Cursor) -> None:
        shares.send_shared_claim(cursor, self._shares, self._scope, self._taker)
