"""A look for jobs: what it sends, what it learns, and when the next one is due.

A look is a claim; a *scan* is a look that reads from the heads of the queues and brings with it
what need not be done each time: promotion of due jobs before the claim, and the list of where
jobs are after it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from django_pgjobs.queries import claims, jobs
from django_pgjobs.queries.notifications import JOBS_CHANNEL
from django_pgjobs.registry import find_task, list_task_paths
from django_pgjobs.retries import Exponential
from django_pgjobs.tasks import Task
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claimer import Claimer, Plan
from django_pgjobs.worker.pacing import Pace
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turn import Rows, Turn

PROMOTE_BATCH = 1_000
# While another worker claims jobs with keys, one that also serves jobs without keys tries again
# after so long, then after twice that, and so on up to the second.
HOLD_SECONDS = (0.008, 0.064)


class Look:
    """Plans the looks of one worker."""

    def __init__(
        self,
        state: WorkerState,
        claimer: Claimer,
        *,
        detailed_paths: list[str],
        wants_details: Callable[[], bool],
    ) -> None:
        self._state = state
        self._claimer = claimer
        self.pace = Pace(state.options.poll_interval)
        self._detailed_paths = detailed_paths
        self._wants_details = wants_details
        self._hold_pause = HOLD_SECONDS[0]
        # The next look is to wait for its turn, because there is nothing else to look for.
        self.waits = False

    def plan(self, turn: Turn, wanted: int, *, from_heads: bool, is_notified: bool = False) -> None:
        """Let a look for *wanted* jobs travel with the turn; `turn.scans` is decided before.

        A scan reads from the heads; a look may do so without the rest of a scan. A worker that
        *is notified* of changes may leave out what found nothing the last time.
        """
        turn.looks = True
        waits, self.waits = self.waits, False
        if turn.scans and is_notified and self._claimer.has_groups:
            # Before the claim: it tells of no write that the claim does not see.
            turn.add(claims.send_change_count, lambda rows: self._note_changes(turn, rows))
        if turn.scans:
            turn.add(
                lambda cursor: jobs.send_promotion(cursor, max_jobs=PROMOTE_BATCH),
                lambda rows: self._note_promotion(turn, rows),
            )
        if self._claimer.has_lanes:
            turn.claims = True
            plan = self._claimer.plan(wanted, from_heads=from_heads)
            self._plan_claim(turn, plan, waits=waits)
        if turn.scans:
            # After the claim, so that it tells what is left.
            with_lowest = self._state.options.ageing is not None
            turn.add(
                lambda cursor: claims.send_lane_listing(cursor, with_lowest=with_lowest),
                lambda rows: self._note_lanes(turn, rows),
            )

    def _plan_claim(self, turn: Turn, plan: Plan, *, waits: bool) -> None:
        taker = self._taker(turn)
        turn.leaves_unknown = bool(taker.unknown_paths)
        if plan.is_keyed:
            self._plan_keyed_claim(turn, plan, taker, waits=waits)
            return
        turn.add(
            lambda cursor: claims.send_claim(
                cursor, plan.floors, max_jobs=plan.wanted, taker=taker
            ),
            lambda rows: self._note_claimed(turn, plan, rows),
        )

    def _plan_keyed_claim(
        self, turn: Turn, plan: Plan, taker: claims.Taker, *, waits: bool
    ) -> None:
        if plan.holds:
            turn.walks = True
            turn.hold_place = len(turn.sends)
            turn.add(
                lambda cursor: claims.send_hold(cursor, waits=waits),
                lambda rows: self._note_hold(turn, rows),
            )
        turn.add(
            lambda cursor: claims.send_keyed_claim(
                cursor,
                plan.floors,
                plan.segments,
                boosts=plan.boosts,
                caps=plan.caps,
                max_jobs=plan.wanted,
                taker=taker,
                takes_tokens=plan.takes_tokens,
                depth=plan.depth,
            ),
            lambda rows: self._note_claimed(turn, plan, rows),
        )
        if turn.scans:
            turn.add(claims.send_token_wait, lambda rows: self._note_token_wait(turn, rows))

    def note_freed(self, turn: Turn, already_stored: list[Attempt]) -> None:
        """Note of which lanes jobs end with the turn or have ended: their next ones may start."""
        rows = [attempt.row for attempt in already_stored]
        rows += [attempt.row for attempt, _ in turn.batch]
        turn.freed = {row.lane for row in rows if row.lane}
        self._claimer.note_freed(rows)
        if turn.freed:
            self.pace.look_now()

    def plan_wakeup(self, turn: Turn) -> None:
        """Let idle workers hear of keys that became free and that this turn leaves to others."""
        turn.add(
            lambda cursor: claims.send_key_wakeup(cursor, channel=JOBS_CHANNEL, lanes=turn.freed),
            lambda rows: None,
        )

    def _taker(self, turn: Turn) -> claims.Taker:
        now = time.monotonic()
        return claims.Taker(
            worker_id=turn.worker_id,
            worker_name=self._state.name,
            unknown_paths=[
                path for path, until in self._state.unknown_paths.items() if until > now
            ],
            detailed=self._wants_details(),
            detailed_paths=self._detailed_paths,
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
        if turn.promoted or turn.changed or turn.falls_short:
            self.pace.look_again()
        if turn.next_due is not None:
            self.pace.look_by(now + turn.next_due + 0.001)
        if turn.token_wait is not None:
            self.pace.look_by(now + turn.token_wait + 0.001)
        if turn.walks:
            self._note_turn_to_claim(turn, now)
        self._settle(turn)
        returned = turn.delays_of_returned()
        if returned and self.pace.look_by(now + min(returned)):
            self._claimer.request_head_scan()

    def _note_turn_to_claim(self, turn: Turn, now: float) -> None:
        if turn.holds:
            self._hold_pause = HOLD_SECONDS[0]
        elif self._claimer.has_only_keys:
            self.waits = True
            self.pace.look_now()
        else:
            self.pace.look_by(now + random.uniform(0.5, 1) * self._hold_pause)
            self._hold_pause = min(2 * self._hold_pause, HOLD_SECONDS[1])

    def _settle(self, turn: Turn) -> None:
        """Leave out the next walks, unless what holds jobs back may end without a write."""
        waits = turn.token_wait is not None or turn.leaves_unknown or turn.promoted
        if turn.scans and (turn.changes is None or waits or self._state.options.drain):
            self._claimer.settled.end()
        elif turn.changes is not None:
            self._claimer.settled.begin(turn.changes)

    def _note_changes(self, turn: Turn, rows: Rows) -> None:
        [(turn.changes,)] = rows
        turn.changed = self._claimer.settled.note_changes(turn.changes)
        if turn.changed:
            self._claimer.request_head_scan()  # so that the next walk can settle them again

    def _note_promotion(self, turn: Turn, rows: Rows) -> None:
        [(turn.promoted, turn.next_due)] = rows

    def _note_lanes(self, turn: Turn, rows: Rows) -> None:
        turn.lanes = [claims.Ready._make(row) for row in rows]
        self._claimer.note_lanes(turn.lanes)

    def _note_hold(self, turn: Turn, rows: Rows) -> None:
        turn.holds = bool(rows)

    def _note_token_wait(self, turn: Turn, rows: Rows) -> None:
        [(turn.token_wait,)] = rows

    def _note_claimed(self, turn: Turn, plan: Plan, rows: Rows) -> None:
        turn.claimed = claims.claimed_rows(rows)
        turn.falls_short = turn.holds and plan.falls_short(turn.claimed)
        self._claimer.note_claimed(turn.claimed, plan, held=turn.holds, seconds=turn.seconds)


def detailed_paths() -> list[str]:
    """Return the tasks whose code sees the whole job: a context argument, a backoff callable."""
    paths = []
    for path in list_task_paths():
        task = find_task(path)
        backoff = task.backoff if isinstance(task, Task) else None
        if task.takes_context or (callable(backoff) and not isinstance(backoff, Exponential)):
            paths.append(path)
    return paths
