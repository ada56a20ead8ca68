"""Sending a claim: its statements, and working around a row that the server refuses to change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import psycopg

from django_pgjobs.declaring.registry import find_task, list_task_paths
from django_pgjobs.declaring.retries import Exponential
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.queries import claims
from django_pgjobs.queries.connection import OwnConnection, Send
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.claiming.keyed_claim import ClaimStatements, KeyedClaim
from django_pgjobs.worker.claiming.plan import Claim, Plan
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.turns.turn import Rows, Turn


class Claimer:
    """Sends the claims of one worker; it keeps no state of them."""

    def __init__(
        self,
        state: WorkerState,
        connection: OwnConnection,
        refusals: Refusals,
        *,
        detailed_paths: list[str],
        wants_details: Callable[[], bool],
        declaring_paths: Iterable[str] = (),
    ) -> None:
        self._state = state
        self._connection = connection
        self._refusals = refusals
        self._detailed_paths = detailed_paths
        self._declaring_paths = list(declaring_paths)
        self._wants_details = wants_details

    def plan(self, turn: Turn, plan: Plan) -> Claim:
        """Add a claim to the turn; return the object that will hold its answer."""
        claim = Claim(plan)
        taker = self._taker(turn.worker_id, plan, self._refusals.passed_over())
        part = turn.begin(lambda error: self._claim_apart(claim, turn.worker_id, error))

        def note_hold(rows: Rows) -> None:
            claim.held = bool(rows)
            claim.waited = rows[0][1] if rows else 0.0

        def note_claimed(rows: Rows) -> None:
            claim.rows = claims.claimed_rows(rows, claim.asked_at)
            claim.chosen, claim.floors = claims.shares_of(rows, plan.floors)
            if keyed is not None:
                claim.chosen = len(keyed.choice.jobs)
            claim.seconds = max(0.0, turn.elapsed - claim.waited)
            claim.is_whole = True

        if plan.holds:
            part.add(lambda cursor: claims.send_hold(cursor, waits=plan.waits), note_hold)
        keyed = KeyedClaim(plan.scope, taker) if plan.is_keyed else None
        statements = _plain_statements(plan, taker) if keyed is None else keyed.statements
        for send in statements.before:
            part.add(send, ignore)
        part.add(_timed(claim, statements.take), note_claimed)
        for send in statements.after:
            part.add(send, ignore)
        return claim

    def _claim_apart(self, claim: Claim, worker_id: int, error: psycopg.Error) -> None:
        """Claim fewer jobs, and pass over those that the server refuses to give."""
        plan = claim.plan
        if trouble_of(error) is Trouble.LOCKED:
            claim.was_locked = True
            return
        # In turn with others who meet the same row: who did without would not get to find it.
        hold: list[Send] = [partial(claims.send_hold, waits=True)] if plan.holds else []
        paths: dict[int, str] = {}
        alone: list[KeyedClaim] = []

        def take(size: int, passed_over: list[int]) -> Sequence[claims.ClaimedRow]:
            if size == 1:
                # Just the one that was found: others may have let go of one that goes before it.
                _, send, after = alone.pop().narrow()
                answers = self._connection.round_trip([_timed(claim, send), *after])
                return claims.claimed_rows(answers[0], claim.asked_at)
            some = plan.after(claim.rows, size)
            taker = self._taker(worker_id, some, passed_over)
            before, send, after = _statements(some, taker)
            before = [*hold, *before]
            answers = self._connection.round_trip([*before, _timed(claim, send), *after])
            return claims.claimed_rows(answers[len(before)], claim.asked_at)

        def find(passed_over: list[int]) -> Sequence[int]:
            one = replace(plan.after(claim.rows, 1), skips_locked=True)
            keyed = KeyedClaim(one.scope, self._taker(worker_id, one, passed_over))
            sends = [*hold, *keyed.statements.before, keyed.send_first]
            found = dict(self._connection.round_trip(sends)[-1])
            alone[:] = [keyed]
            paths.update(found)
            return list(found)

        for rows in self._refusals.in_pages(
            self._connection, take, size=plan.wanted, find=find, paths=paths
        ):
            claim.rows += rows
            if len(claim.rows) >= plan.wanted:
                break
        claim.is_whole = not (claim.rows or plan.holds)

    def _taker(self, worker_id: int, plan: Plan, passed_over: list[int]) -> claims.Taker:
        return claims.Taker(
            worker_id=worker_id,
            worker_name=self._state.name,
            passed_over_paths=[*self._state.paths_of_others, *self._refusals.passed_over_paths()],
            passed_over=passed_over,
            detailed=self._wants_details(),
            detailed_paths=self._detailed_paths,
            declaring_paths=self._declaring_paths,
            takes_tokens=plan.takes_tokens,
        )


def ignore(rows: Rows) -> None:
    """Ignore the rows of a statement."""


def _timed(claim: Claim, send: Send) -> Send:
    """Return *send*, which also notes its time: the statements before it may have waited."""

    def timed(cursor: Cursor) -> None:
        claim.asked_at = time.monotonic()
        send(cursor)

    return timed


def _statements(plan: Plan, taker: claims.Taker) -> ClaimStatements:
    """Return the statements of a claim: claim_jobs.sql, and for jobs with keys those around it."""
    if plan.is_keyed:
        return KeyedClaim(plan.scope, taker).statements
    return _plain_statements(plan, taker)


def _plain_statements(plan: Plan, taker: claims.Taker) -> ClaimStatements:
    """Return the one statement: claim_jobs.sql, or claim_lanes.sql between lanes of a kind."""
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


def detailed_paths() -> list[str]:
    """Return the tasks whose code sees the whole job: a context argument, a backoff callable."""
    paths = []
    for path in list_task_paths():
        task = find_task(path)
        backoff = task.backoff if isinstance(task, Task) else None
        if task.takes_context or (callable(backoff) and not isinstance(backoff, Exponential)):
            paths.append(path)
    return paths
