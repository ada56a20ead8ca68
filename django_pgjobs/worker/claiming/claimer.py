"""Sending a claim: its statements, and working around a row that the server refuses to change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import psycopg

from django_pgjobs.declaring.registry import find_task, list_task_paths
from django_pgjobs.declaring.retries import Exponential
from django_pgjobs.declaring.tasks import Task
from django_pgjobs.queries import claims
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.worker.claiming.careful_claim import CarefulClaim
from django_pgjobs.worker.claiming.claim_statements import statements_of, timed
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
        """Add a claim (mostly claim_jobs.sql) to the turn; return what will hold its answer."""
        claim = Claim(plan)
        taker = self._taker(turn.worker_id, plan, self._refusals.passed_over())
        statements = statements_of(plan, taker)
        part = turn.begin(lambda error: self._claim_apart(claim, turn.worker_id, error))

        def note_hold(rows: Rows) -> None:
            claim.held = bool(rows)
            claim.waited = rows[0][1] if rows else 0.0

        def note_claimed(rows: Rows) -> None:
            claim.rows = claims.claimed_rows(rows, claim.asked_at)
            claim.chosen, claim.floors = claims.shares_of(rows, plan.floors)
            if statements.keyed is not None:
                claim.chosen = len(statements.keyed.chosen)
            claim.seconds = max(0.0, turn.elapsed - claim.waited)
            claim.is_whole = True

        if plan.holds:
            part.add(lambda cursor: claims.send_hold(cursor, waits=plan.waits), note_hold)
        for send in statements.before:
            part.add(send, ignore)
        part.add(timed(claim, statements.take), note_claimed)
        for send in statements.after:
            part.add(send, ignore)
        return claim

    def _claim_apart(self, claim: Claim, worker_id: int, error: psycopg.Error) -> None:
        """Claim fewer jobs, and pass over those that the server refuses to give."""
        plan = claim.plan
        if trouble_of(error) is Trouble.LOCKED:
            claim.was_locked = True
            return
        careful = CarefulClaim(self._connection, claim, partial(self._taker, worker_id))
        for rows in self._refusals.in_pages(
            self._connection,
            careful.take,
            size=plan.wanted,
            find=careful.find,
            take_found=careful.take_found,
        ):
            claim.rows += rows
            if len(claim.rows) >= plan.wanted:
                break
        claim.is_whole = not (claim.rows or plan.holds)

    def _taker(self, worker_id: int, plan: Plan, passed_over: list[int]) -> claims.Taker:
        return claims.Taker(
            worker_id=worker_id,
            worker_name=self._state.name,
            passed_over_paths=[
                *self._state.paths_of_others,
                *self._state.refused_paths,
                *self._refusals.passed_over_paths(),
            ],
            passed_over=passed_over,
            detailed=self._wants_details(),
            detailed_paths=self._detailed_paths,
            declaring_paths=self._declaring_paths,
            takes_tokens=plan.takes_tokens,
        )


def ignore(rows: Rows) -> None:
    """Ignore the rows of a statement."""


def detailed_paths() -> list[str]:
    """Return the tasks whose code sees the whole job: a context argument, a backoff callable."""
    paths = []
    for path in list_task_paths():
        task = find_task(path)
        backoff = task.backoff if isinstance(task, Task) else None
        if task.takes_context or (callable(backoff) and not isinstance(backoff, Exponential)):
            paths.append(path)
    return paths
