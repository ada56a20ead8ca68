"""The statements of a claim, for whatever it is to read."""

from __future__ import annotations

import time
from functools import partial

from django_pgjobs.queries import claims
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.sends import Send
from django_pgjobs.worker.claiming.keyed_claim import ClaimStatements, KeyedClaim
from django_pgjobs.worker.claiming.plan import Claim, Plan


def statements_of(plan: Plan, taker: claims.Taker) -> ClaimStatements:
    """Return the statements of a claim.

    claim_jobs.sql; between several lanes of a kind claim_lanes.sql; for jobs with keys
    claim_chosen.sql with those around it.
    """
    if plan.is_keyed:
        return KeyedClaim(plan.scope, taker).statements
    take = partial(
        claims.send_claim,
        floors=plan.floors,
        rooms=plan.rooms,
        max_jobs=plan.wanted,
        taker=taker,
        ends=plan.ends,
        skips_locked=plan.skips_locked,
    )
    return ClaimStatements([], take, [])


def timed(claim: Claim, send: Send) -> Send:
    """Return *send*, which also notes its time: the statements before it may have waited."""

    def timed_send(cursor: Cursor) -> None:
        claim.asked_at = time.monotonic()
        send(cursor)

    return timed_send
