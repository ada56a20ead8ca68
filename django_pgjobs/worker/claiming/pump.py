"""The pump: claims jobs and writes outcomes, both in the same round trip.

One loop, one connection. Every turn sends what has to be written and one claim together (they
commit together, so a busy worker pays one commit for a batch of outcomes and the next claim), and
hands on what came back. Where jobs are the upkeep finds out; the pump claims as long as it knows of
places that may have some, and never polls.

*Lost connections.* Outcomes are kept and sent again. A claim whose answer was lost may have
taken jobs that we never heard of; the upkeep gives them back.

*Rows that are locked or refused* delay themselves and nothing else (`sending`).

*Planning forgets nothing.* A turn begins with taking over what is known without a statement:
offers, outcomes that are stored already, and jobs that no slot has begun. From there on what the
worker knows changes with the answers, so a turn that fails is planned again and nothing that was
asked for is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import psycopg

from django_pgjobs.choosing import Rooms
from django_pgjobs.declaring.remote import is_remote
from django_pgjobs.exceptions import LeaseLost
from django_pgjobs.queries import claims
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.errors import Trouble, trouble_of
from django_pgjobs.queries.notifications import JOBS_CHANNEL, notify_workers
from django_pgjobs.values.words import counted
from django_pgjobs.worker.attempt import HOARD_SECONDS, Attempt
from django_pgjobs.worker.backoff import Backoff
from django_pgjobs.worker.claiming.claimer import Claimer, ignore
from django_pgjobs.worker.claiming.completer import LINGER_SECONDS, Completer
from django_pgjobs.worker.claiming.demand import Demand
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.claiming.outlook import Outlook
from django_pgjobs.worker.claiming.places import Places
from django_pgjobs.worker.claiming.plan import Claim, Listing
from django_pgjobs.worker.claiming.releases import Releases
from django_pgjobs.worker.claiming.settling import Settling
from django_pgjobs.worker.claiming.writing import Writing, write_last
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.running.calling import make_attempt
from django_pgjobs.worker.running.outcome import NO_SLOT, Entry, Outcome, released
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.turns.reporting import Reporter
from django_pgjobs.worker.turns.sending import Sender
from django_pgjobs.worker.turns.turn import Turn

logger = get_logger(__name__)

CONTROL_NOTE = "given back: something was paused or resumed"
LEASE_NOTE = "given back: the lease was not renewed"


class Pump(Role):
    """Moves jobs between the table and the slots."""

    name = "pump"

    def __init__(
        self,
        state: WorkerState,
        connection: OwnConnection,
        demand: Demand,
        places: Places,
        claimer: Claimer,
        refusals: Refusals,
        completer: Completer,
        errands: Errands,
        *,
        dispatch: Callable[[list[Attempt]], None],
        take_back: Callable[[float | None], list[Attempt]],
        on_interrupted: Callable[[Attempt], None],
        on_limit: Callable[[str], None],
        on_crash: Callable[[str], None],
    ) -> None:
        super().__init__(on_crash)
        self._state = state
        self._connection = connection
        self._demand = demand
        self._places = places
        self._claimer = claimer
        self._refusals = refusals
        self._completer = completer
        self._errands = errands
        self._dispatch = dispatch
        self._take_back = take_back
        self._on_interrupted = on_interrupted
        self._on_limit = on_limit
        self._sender = Sender(state.name)
        self._reporter = Reporter(connection)
        self._releases = Releases(self._note_released)
        self._settling = Settling(state.name, self._note_filled)
        self._backoff = Backoff(state.name, "statement")
        self.outlook = Outlook(demand, places, completer, self._releases, self._settling)
        # Why what nothing has begun is to go back, as others said; "" if it is not.
        self._recalled = ""

    # What other threads say

    def add_outcome(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Take over an outcome, and wake up unless it may wait for company.

        Return False if the attempt has ended before.
        """
        if outcome.leaves_batch and attempt.row.batch_id is not None:
            self._settling.ask([attempt.row.batch_id])
        if not self._completer.add(attempt, outcome):
            return False
        if self._completer.is_oldest(attempt) or self._demand.is_low(attempt):
            self.wake()
        return True

    def offer(self, place: Listing | str) -> None:
        """Say where jobs are: what a look found, or the queue that a notification named."""
        self.outlook.note_offer(place)
        self.wake()

    def settle(self, batch_ids: list[int]) -> None:
        """Count what is noted of batches."""
        self._settling.ask(batch_ids)
        self.wake()

    def recall(self, note: str = CONTROL_NOTE) -> None:
        """Give back what nothing has begun to run, and what a claim under way brings."""
        self._recalled = note
        self.wake()

    def give_up_all(self) -> None:
        """End and give back everything, because the lease is lost or about to be.

        Where the lease is lost already, no row is changed: the claims have risen.
        """
        # Before it looks at what is held: jobs of a claim that is under way are held, and then
        # given back for this.
        self._recalled = LEASE_NOTE
        self._give_back(self._take_back(None), LEASE_NOTE)
        for attempt in list(self._state.held.values()):
            if attempt.interrupt(LeaseLost):
                self._on_interrupted(attempt)
        self.wake()

    # The loop

    def run(self) -> None:
        while not (self.stop_requested and self._completer.is_all_aside):
            try:
                worked = self._take_turn()
            except psycopg.Error as error:
                pause = self._backoff.note_failure(error)
                if trouble_of(error) is Trouble.LOST:
                    self._connection.close()
                if self.stop_requested and self._backoff.failures > 3:
                    break
                self.wait(pause)
                continue
            self._backoff.note_success()
            self._check_limit()
            if not worked:
                self._rest()
        else:
            write_last(self._completer, self._connection)
        self._connection.close()

    def _take_turn(self) -> bool:
        """Do what is due in one round trip; return False if nothing was."""
        # While it rested, nobody would have noticed that the connection is gone.
        self._connection.close_if_dead()
        self._connection.open()
        self._accept_offers()
        stored = self._completer.settle_known()
        self._note_ended(stored)
        now = time.monotonic()
        self._places.note_time(now)
        self._return_unbegun(now)
        self._demand.measure(self._connection.distance)
        turn = Turn(self._state.worker_id)
        rooms, waits = self._rooms(now)
        # What is written stays locked until the commit: a claim that waits travels alone.
        writing = self._plan_writing(turn, is_due=not waits)
        self._plan_telling(turn, writing.travelling, stored)
        claim = self._plan_claim(turn, writing, now, rooms, waits=waits)
        if not waits:
            # Last: nothing may wait for a lock behind it.
            self._settling.plan(turn, (a for a, _ in writing.travelling), self._connection)
        if not turn.parts and not writing.entries:
            return False
        try:
            if not turn.parts:
                pass
            elif claim is None:
                self._send(turn, writing)
            else:
                with self._state.claiming:
                    self._send_claim(turn, writing, claim)
                self._learn(claim)
                self.outlook.note_dry()
            writing.write_others()
        finally:
            # After what the claim has said of the places: it counted these jobs as held.
            self._note_written(writing, now)
        return True

    def _accept_offers(self) -> None:
        offers = self.outlook.offers
        while offers:
            # Known before it is taken, so that the pump does not look idle in between.
            offer = offers[0]
            if isinstance(offer, str):
                self._places.note_queue(offer)
            else:
                self._places.note_listing(offer)
            offers.popleft()

    def _rooms(self, now: float) -> tuple[Rooms, bool]:
        """Return how many jobs of each kind to claim, and whether the claim waits for its turn."""
        rooms = self._demand.rooms()
        if self._places.waits(now, rooms):
            return self._demand.rooms(waits=True), True
        return rooms, False

    def _plan_writing(self, turn: Turn, *, is_due: bool) -> Writing:
        has_some = self._completer.has_some or self._releases.are_under_way
        if not (is_due and has_some):
            return Writing(self._completer, self._connection)
        writing = Writing.of_due(
            self._completer,
            self._connection,
            flushes=self._flush_is_due(),
            on_queues=self._note_released,
        )
        # Before the end, after which an attempt no longer owns its job.
        self._reporter.plan(turn, [attempt for attempt, _ in writing.travelling])
        writing.plan(turn)
        self._releases.plan(turn, [attempt for attempt, _ in writing.travelling])
        return writing

    def _plan_telling(
        self, turn: Turn, entries: Sequence[Entry], stored: Sequence[Attempt]
    ) -> None:
        """Tell idle workers of jobs that this one cannot run, or lets start as it stops."""
        if not (entries or stored):
            return
        queues = {attempt.queue_name for attempt, end in entries if end.is_handed_on}
        if queues:
            turn.add(partial(notify_workers, queue_names=list(queues)), ignore)
        ended = [*stored, *(attempt for attempt, _ in entries)]
        lanes = {attempt.row.lane for attempt in ended if attempt.row.lane}
        if lanes and self._state.stopping:
            # The upkeep, which tells of freed keys, may end before it does.
            send = partial(claims.send_key_wakeup, channel=JOBS_CHANNEL, lanes=lanes)
            turn.add(send, ignore)

    def _plan_claim(
        self, turn: Turn, writing: Writing, now: float, rooms: Rooms, *, waits: bool
    ) -> Claim | None:
        if not any(rooms):
            return None
        plan = self._places.plan(
            rooms,
            now,
            wanted=self._demand.in_all(rooms),
            free=self._demand.free,
            caps=self._demand.caps(),
            waits=waits,
            ending=[attempt.row for attempt, _ in writing.travelling],
        )
        return self._claimer.plan(turn, plan) if plan else None

    def _send_claim(self, turn: Turn, writing: Writing, claim: Claim) -> None:
        try:
            self._send(turn, writing)
        except psycopg.Error as error:
            if trouble_of(error) is not Trouble.CROSSED:
                self.outlook.note_lost()
            raise
        finally:
            # A turn in parts may have claimed jobs before its connection broke.
            self._accept(claim, turn.worker_id)

    def _send(self, turn: Turn, writing: Writing) -> None:
        try:
            self._sender.send(turn, self._connection)
        except psycopg.Error as error:
            writing.put_back(is_sent=trouble_of(error) is Trouble.LOST)
            raise

    # What came back

    def _note_written(self, writing: Writing, asked_at: float) -> None:
        ended = [entry for entry in writing.entries if not self._completer.keeps(entry[0])]
        self._note_ended([attempt for attempt, _ in ended])
        self._settling.ask(writing.batches)
        returned = [
            (a.row._replace(is_async=a.hint), end.delay or 0.0)
            for a, end in ended
            if end.status is None
        ]
        if returned:
            self._places.note_returned(row for row, delay in returned if not delay)
            self._errands.look_by(asked_at + min(delay for _, delay in returned))

    def _note_ended(self, attempts: list[Attempt]) -> None:
        if not attempts:
            return
        rows = [attempt.row for attempt in attempts]
        self._places.note_ended(rows)
        self._errands.note_ended(rows)
        if not self._state.options.listen and any(row.lane for row in rows):
            # Nobody tells it that what waits for the key in another place may start.
            self._errands.look_by(0.0)

    def _note_released(self, queues: list[str]) -> None:
        """Note the queues of jobs that were made, or let go, because others have ended."""
        for queue_name in queues:
            self._places.note_queue(queue_name)
        if queues:
            self._errands.look_by(0.0)

    def _note_filled(self, queues: list[str]) -> None:
        """Note the queues of jobs that were made behind the claim: the next turn takes them over.

        What the claim says of these queues was true before.
        """
        self.outlook.offers.extend(queues)
        if queues:
            self._errands.look_by(0.0)

    def _accept(self, claim: Claim, worker_id: int) -> None:
        """Hand claimed jobs to the slots; not if the lease was lost in the meantime."""
        if not claim.rows:
            return
        self.outlook.note_claimed()
        attempts = [make_attempt(row, self._state.options) for row in claim.rows]
        # Their modules were loaded after the start: no claim takes more of them.
        remote = {a.row.task_path for a in attempts if is_remote(a.task)}
        self._state.paths_of_others |= remote
        if not self._state.options.unknown_fails:
            self._refusals.note_unknown([a.row.task_path for a in attempts if not a.task])
        if worker_id != self._state.worker_id:
            logger.warning(
                "worker=%s dropped %s of a lost lease",
                self._state.name,
                counted(len(attempts), "job"),
            )
            return
        for attempt in attempts:
            self._state.held[attempt.id] = attempt
        if self._recalled:  # claimed before that, perhaps
            self._give_back(attempts, self._recalled)
        else:
            self._dispatch(attempts)

    def _learn(self, claim: Claim) -> None:
        """Let the places know what came of a claim; its jobs are in the worker's hands by now."""
        if claim.was_locked:
            self._places.note_locked(claim.plan)
        elif claim.is_whole:
            self._places.note_claimed(claim)

    def _check_limit(self) -> None:
        limit = self._state.options.max_jobs
        if limit is not None and self._state.finished_jobs >= limit:
            self._on_limit(f"{counted(limit, 'job')} done")

    # Conditions

    def _flush_is_due(self) -> bool:
        oldest = self._completer.oldest()
        is_low = oldest is not None and self._demand.is_low(oldest)
        return is_low or self._completer.oldest_age() >= LINGER_SECONDS

    def _rest(self) -> None:
        """Sleep until something is due, and let the upkeep look for jobs if none are known."""
        now, rooms = time.monotonic(), self._demand.rooms()
        is_dry = self.outlook.note_dry()
        if is_dry:
            self._errands.wake()
        self.wait(self.outlook.seconds_of_rest(now, rooms, is_dry=is_dry))
        if is_dry:
            self.outlook.note_waited()

    def _return_unbegun(self, now: float) -> None:
        if note := self._recalled:
            self._recalled = ""
            self._give_back(self._take_back(None), note)
        elif self._demand.buffered():
            self._give_back(self._take_back(now - HOARD_SECONDS), NO_SLOT)

    def _give_back(self, attempts: list[Attempt], note: str) -> None:
        for attempt in attempts:
            self._completer.add(attempt, released(note))
