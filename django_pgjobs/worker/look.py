"""A look for jobs: what it sends, what it learns, and when the next one is due.

A look is a claim; a *scan* is a look that reads from the heads of the queues and brings with it
what need not be done each time: promotion of due jobs before the claim, and the list of where
jobs are after it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import psycopg

from django_pgjobs.queries import claims, jobs
from django_pgjobs.queries.connection import OwnConnection, Send
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.notifications import JOBS_CHANNEL
from django_pgjobs.registry import find_task, list_task_paths
from django_pgjobs.retries import Exponential
from django_pgjobs.tasks import Task
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.careful import in_pages
from django_pgjobs.worker.claimer import Claimer, Plan
from django_pgjobs.worker.keyed_claim import KeyedClaim
from django_pgjobs.worker.pacing import Pace
from django_pgjobs.worker.refusals import PATIENCE, Refusals
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turn import Rows, Turn

PROMOTE_BATCH = 1_000
# While another worker claims jobs with keys, one that also serves jobs without keys tries again
# after so long, then after twice that, and so on up to the second.
HOLD_SECONDS = (0.008, 0.064)
# After a claim has waited for a lock in vain, the next ones do without what was locked for so long.
LOCKED_SECONDS = 1.0


class Look:
    """Plans the looks of one worker."""

    def __init__(
        self,
        state: WorkerState,
        claimer: Claimer,
        connection: OwnConnection,
        *,
        detailed_paths: list[str],
        wants_details: Callable[[], bool],
    ) -> None:
        self._state = state
        self._claimer = claimer
        self.pace = Pace(state.options.poll_interval)
        self._connection = connection
        self._refusals = Refusals(state, connection)
        self._detailed_paths = detailed_paths
        self._wants_details = wants_details
        self._hold_pause = HOLD_SECONDS[0]
        # The next look is to wait for its turn, because there is nothing else to look for.
        self.waits = False
        # Somebody holds a lock: until when to do without rate limits, and without such waits.
        self._tokens_at = self._waits_at = 0.0
        # Keys that became free and that no idle worker has been told of yet.
        self._freed: set[str] = set()

    def plan(self, turn: Turn, wanted: int, *, from_heads: bool) -> None:
        """Let a look for *wanted* jobs travel with the turn; `turn.scans` is decided before.

        A scan reads from the heads; a look may do so without the rest of a scan.
        """
        turn.looks = True
        if turn.scans:
            passed_over = self._refusals.passed_over()
            turn.begin(lambda error: self._promote_apart(turn)).add(
                lambda cursor: jobs.send_promotion(
                    cursor, max_jobs=PROMOTE_BATCH, passed_over=passed_over
                ),
                lambda rows: self._note_promotion(turn, rows),
            )
        if self._claimer.has_lanes:
            turn.claims = True
            self._plan_claim(turn, self._claimer.plan(wanted, from_heads=from_heads))
        if turn.scans:
            # After the claim, so that it tells what is left.
            with_lowest = self._state.options.ageing is not None
            turn.add(
                lambda cursor: claims.send_lane_listing(cursor, with_lowest=with_lowest),
                lambda rows: self._note_lanes(turn, rows),
            )

    def _plan_claim(self, turn: Turn, plan: Plan) -> None:
        taker = self._taker(turn)
        part = turn.begin(lambda error: self._claim_apart(turn, plan, error))
        if plan.holds:
            turn.walks, waits = True, self.waits
            part.add(
                lambda cursor: claims.send_hold(cursor, waits=waits),
                lambda rows: self._note_hold(turn, rows),
            )
        *before, claim = _sends_of_claim(plan, taker)
        for send in before:
            part.add(send, lambda rows: None)
        part.add(claim, lambda rows: self._note_claimed(turn, plan, rows))
        if plan.is_keyed and turn.scans:
            part.add(claims.send_token_wait, lambda rows: self._note_token_wait(turn, rows))

    # If the server refuses it

    def _promote_apart(self, turn: Turn) -> None:
        def send(cursor: Cursor, max_jobs: int, acts: bool) -> None:
            passed_over = self._refusals.passed_over()
            jobs.send_promotion(cursor, max_jobs=max_jobs, passed_over=passed_over, acts=acts)

        def promote(size: int, _: list[int]) -> Sequence[int]:
            [rows] = self._connection.round_trip([partial(send, max_jobs=size, acts=True)])
            self._note_promotion(turn, rows)
            return range(rows[0][0])

        def find(_: list[int]) -> list[int]:
            [[(_, _, ids)]] = self._connection.round_trip([partial(send, max_jobs=1, acts=False)])
            return list(ids)

        for _ in in_pages(
            promote,
            size=PROMOTE_BATCH,
            find=find,
            on_refused=self._refusals.note,
            patience=PATIENCE,
        ):
            pass

    def _claim_apart(self, turn: Turn, plan: Plan, error: psycopg.Error) -> None:
        """Claim fewer jobs, and pass over those that the server refuses to give.

        If it was a lock that the claim waited for, somebody holds the state of a rate limit or
        the right to claim jobs with keys: do without for a while.
        """
        turn.walks = turn.holds = False
        if trouble_of(error) is Trouble.LOCKED:
            turn.repeats = plan.is_keyed and time.monotonic() >= self._tokens_at
            self._tokens_at = self._waits_at = time.monotonic() + LOCKED_SECONDS
            self.waits = False
            return
        hold: list[Send] = [claims.send_hold] if plan.holds else []
        paths: dict[int, str] = {}

        def claim(size: int, _: list[int]) -> Sequence[claims.ClaimedRow]:
            part = replace(plan, wanted=min(size, plan.wanted - len(turn.claimed)))
            taker = self._taker(turn)
            sends = [*hold, *_sends_of_claim(part, taker)]
            rows = claims.claimed_rows(self._connection.round_trip(sends)[-1])
            turn.claimed += rows
            return rows

        def find(_: list[int]) -> Sequence[int]:
            claim = KeyedClaim(plan.scope, self._taker(turn))
            sends = [*hold, claim.sends[0], claim.send_first]
            paths.update(self._connection.round_trip(sends)[-1])
            return list(paths)

        for _ in in_pages(
            claim,
            size=plan.wanted,
            find=find,
            on_refused=lambda job_id, error: self._refusals.note(job_id, error, paths[job_id]),
            patience=PATIENCE,
        ):
            if len(turn.claimed) >= plan.wanted:
                break
        turn.repeats = bool(turn.claimed)

    def note_freed(self, attempts: list[Attempt]) -> None:
        """Note of which lanes jobs end with the turn or have ended: their next ones may start."""
        rows = [attempt.row for attempt in attempts]
        freed = {row.lane for row in rows if row.lane}
        self._freed |= freed
        self._claimer.note_freed(rows)
        if freed:
            self.pace.look_now()

    def plan_wakeup(self, turn: Turn) -> None:
        """Let idle workers hear of keys that became free and that this turn leaves to others."""
        if self._freed:
            lanes = frozenset(self._freed)
            turn.add(
                lambda cursor: claims.send_key_wakeup(cursor, channel=JOBS_CHANNEL, lanes=lanes),
                lambda rows: self._freed.difference_update(lanes),
            )

    def _taker(self, turn: Turn) -> claims.Taker:
        now = time.monotonic()
        return claims.Taker(
            worker_id=turn.worker_id,
            worker_name=self._state.name,
            unknown_paths=[
                path for path, until in self._state.unknown_paths.items() if until > now
            ],
            passed_over=self._refusals.passed_over(),
            detailed=self._wants_details(),
            detailed_paths=self._detailed_paths,
            takes_tokens=now >= self._tokens_at,
        )

    def set_next(self, turn: Turn, now: float) -> None:
        """Decide when to look next."""
        if turn.claimed:
            nothing_left = turn.lanes is not None and not self._claimer.has_lanes
            self.pace.found_jobs(now, nothing_left=nothing_left)
        elif turn.looks and not turn.claims and self._claimer.has_lanes:
            self.pace.look_again()
            turn.missed = not turn.promoted
        elif turn.looks and not turn.scans and self._claimer.head_scan_is_due():
            self.pace.look_again()
        elif turn.looks:
            self.pace.found_nothing(now)
        if turn.promoted or turn.repeats:
            self.pace.look_again()
        if turn.next_due is not None:
            self.pace.look_by(now + turn.next_due + 0.001)
        if turn.token_wait is not None:
            self.pace.look_by(now + turn.token_wait + 0.001)
        if turn.walks:
            self._note_turn_to_claim(turn, now)
        self._look_for_returned(turn, now)

    def _look_for_returned(self, turn: Turn, now: float) -> None:
        returned = turn.delays_of_returned()
        if returned and self.pace.look_by(now + min(returned)):
            self._claimer.request_head_scan()

    def _note_turn_to_claim(self, turn: Turn, now: float) -> None:
        self.waits = False
        if turn.holds:
            self._hold_pause = HOLD_SECONDS[0]
        elif self._claimer.has_only_keys and now >= self._waits_at:
            self.waits = True
            self.pace.look_now()
        else:
            self.pace.look_by(now + random.uniform(0.5, 1) * self._hold_pause)
            self._hold_pause = min(2 * self._hold_pause, HOLD_SECONDS[1])

    def _note_promotion(self, turn: Turn, rows: Rows) -> None:
        [(promoted, turn.next_due, _)] = rows
        turn.promoted += promoted

    def _note_lanes(self, turn: Turn, rows: Rows) -> None:
        turn.lanes = [claims.Ready._make(row) for row in rows]
        self._claimer.note_lanes(turn.lanes)

    def _note_hold(self, turn: Turn, rows: Rows) -> None:
        turn.holds = bool(rows)
        turn.waited = rows[0][1] if rows else 0.0

    def _note_token_wait(self, turn: Turn, rows: Rows) -> None:
        [(turn.token_wait,)] = rows

    def _note_claimed(self, turn: Turn, plan: Plan, rows: Rows) -> None:
        turn.claimed = claims.claimed_rows(rows)
        self._claimer.note_claimed(turn.claimed, plan, held=turn.holds, seconds=turn.seconds)


def _sends_of_claim(plan: Plan, taker: claims.Taker) -> list[Send]:
    """Return the statements of a claim; the rows of the last one are the jobs."""
    if plan.is_keyed:
        return KeyedClaim(plan.scope, taker).sends
    return [
        lambda cursor: claims.send_claim(cursor, plan.floors, max_jobs=plan.wanted, taker=taker)
    ]


def detailed_paths() -> list[str]:
    """Return the tasks whose code sees the whole job: a context argument, a backoff callable."""
    paths = []
    for path in list_task_paths():
        task = find_task(path)
        backoff = task.backoff if isinstance(task, Task) else None
        if task.takes_context or (callable(backoff) and not isinstance(backoff, Exponential)):
            paths.append(path)
    return paths
