"""Outcomes on their way from the slots to the database.

Slots add outcomes; the pump takes them in batches, and sends one statement per kind
(`outcome_statements`). An outcome leaves this module when the server has answered: it is written,
or lost to another attempt. Nothing is forgotten when a connection breaks; an outcome that may
already be written is sent again, which the claim in every WHERE clause makes harmless.

The server may refuse an outcome. Then the job fails with a plain text (`writing`); if even that is
refused, its row is to blame, and the outcome itself is tried again later (`refused`).

A transaction of the project may lock a job's row for as long as it lasts. Then the outcome is set
aside and retried by statements that skip locked rows, so nobody waits, until the row is free or
belongs to another attempt.

A filling with a unique key also waits for a transaction that has just inserted a job with that key,
and no statement can skip that wait. So once it had to wait, it is sent alone, with a short timeout.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import psycopg

from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.refused import RefusedOutcomes
from django_pgjobs.worker.running.outcome import AT_SHUTDOWN, Entry, Kind, Outcome, released
from django_pgjobs.worker.running.tally import Tally
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import LoggedJobs

logger = get_logger(__name__)

# A busy worker lets outcomes wait this long, to write more of them together.
LINGER_SECONDS = 0.01
# Outcomes of one round trip to a near server: more of them delay its answer and save nothing.
MAX_BATCH = 1_000
# An outcome whose row is locked is retried after the first pause, which doubles up to the second.
PAUSES = (0.05, 1.0)
# How long a filling waits for a unique key, and after a vain wait the pause until the next tries.
KEY_SECONDS = 0.02
KEY_PAUSE = 0.1


class Completer:
    """Outcomes on their way to the database."""

    def __init__(
        self,
        state: WorkerState,
        tally: Tally,
        on_stored: Callable[[Attempt, Outcome], None],
        told: LoggedJobs | None = None,
        *,
        on_doubt: Callable[[Attempt, Outcome], None] = lambda attempt, outcome: None,
    ) -> None:
        self._state = state
        self._tally = tally
        self._on_stored = on_stored
        # Takes what is lost, but may be stored.
        self._on_doubt = on_doubt
        # The jobs of which was said that their outcomes cannot be written.
        self._told = LoggedJobs() if told is None else told
        self._pending: deque[Entry] = deque()
        # Outcomes that need no statement.
        self._known: deque[Entry] = deque()
        self.refused = RefusedOutcomes(state)
        # Other outcomes that could not be written, by the ids of their jobs.
        self._aside: dict[int, Entry] = {}
        # When those of them that set a unique key may be tried again.
        self._keys_at = 0.0

    def __len__(self) -> int:
        return len(self._pending) + len(self._known)

    @property
    def has_some(self) -> bool:
        """Are there outcomes, those that wait for another try included?"""
        return bool(self._pending or self._known or self._aside or self.refused)

    def add(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Take over an outcome; return False if the attempt has ended before. Thread-safe.

        What is stored already stands, whatever was to be written before.
        """
        if not attempt.take_end() and not outcome.stored:
            return False
        needs_none = outcome.stored or outcome.kind in (Kind.LOST, Kind.LEFT)
        (self._known if needs_none else self._pending).append((attempt, outcome))
        return True

    def oldest_age(self) -> float:
        """Return the seconds that the oldest unwritten outcome has waited, 0 if there is none."""
        try:
            return time.monotonic() - self._pending[0][1].ended_at
        except IndexError:
            return 0.0

    def oldest(self) -> Attempt | None:
        """Return the attempt whose outcome is to be written first."""
        return _first(self._pending)

    def is_oldest(self, attempt: Attempt) -> bool:
        """Is its outcome the oldest of those to be written, or of the others? Thread-safe.

        Of several that come at the same time, exactly one is, unless the pump has taken it by then.
        """
        return _first(self._pending) is attempt or _first(self._known) is attempt

    def settle_known(self) -> list[Attempt]:
        """Settle the outcomes that need no statement; return the attempts that are stored."""
        stored: list[Entry] = []
        while self._known:
            attempt, outcome = self._known.popleft()
            if outcome.kind is Kind.LOST:
                self._settle_lost(attempt, outcome)
            elif outcome.kind is Kind.LEFT:
                self._state.unwritable.add(attempt.id)
                self._state.let_go(attempt)
            else:
                self._settle_stored(attempt, outcome)
                stored.append((attempt, outcome))
        self._tally.note(stored)
        return [attempt for attempt, _ in stored]

    def take(self, most: int = MAX_BATCH) -> list[Entry]:
        """Take a batch of outcomes to be written."""
        return [self._pending.popleft() for _ in range(min(most, len(self._pending)))]

    def put_back(self, batch: list[Entry], *, is_sent: bool) -> None:
        """Take a batch back to send it again; *is_sent*: it may have been written already."""
        for entry in reversed(batch):
            entry[1].sent = entry[1].sent or is_sent
            self._pending.appendleft(entry)

    def settle(self, batch: Sequence[Entry], written: Collection[int]) -> None:
        """Note which outcomes of a batch the server has written; the others are lost."""
        is_whole = len(written) == len(batch)
        stored = batch if is_whole else meant_by(written, batch)
        self._tally.note(stored)
        kept = set() if is_whole else {attempt for attempt, _ in stored}
        for attempt, outcome in batch:
            if self.aside(attempt) is not None:
                del self._aside[attempt.id]
            self.refused.drop(attempt)
            if is_whole or attempt in kept:
                self._settle_stored(attempt, outcome)
            else:
                self._settle_lost(attempt, outcome)

    def keeps(self, attempt: Attempt) -> bool:
        """Is the attempt's outcome still to be written?"""
        return self._state.holds(attempt) or self.refused.has(attempt)

    def aside(self, attempt: Attempt) -> Outcome | None:
        """Return the outcome of an attempt that waits for somebody's lock."""
        entry = self._aside.get(attempt.id)
        return entry[1] if entry and entry[0] is attempt else None

    def unwritten(self) -> dict[Attempt, Outcome]:
        """Return the outcomes that are still to be written, and that no turn has taken.

        Without fillings, which may have to wait for a key.
        """
        # A copy in one step, because others may be changing them.
        entries = [*self._pending, *self._aside.values()]
        return {a: outcome for a, outcome in entries if outcome.control is None}

    # Outcomes that could not be written

    @property
    def is_all_aside(self) -> bool:
        """Does everything that the worker still holds wait for somebody's lock?"""
        return not len(self) and self._state.held.keys() <= self._aside.keys()

    def take_due(self) -> list[Entry]:
        """Return the outcomes that are to be tried again; they stay here until they are settled."""
        return self._due(takes_key=False)[:MAX_BATCH]

    def take_due_keys(self) -> list[Entry]:
        """Return the due outcomes that set a unique key, the longest waiting first.

        A worker that stops waits for none: these jobs go back.
        """
        if self._state.stopping:
            self._give_up_keys()
        return self._due(takes_key=True) if self._keys_at <= time.monotonic() else []

    def _give_up_keys(self) -> None:
        for attempt, outcome in list(self._aside.values()):
            if outcome.takes_key:
                self._aside[attempt.id] = attempt, replace(released(AT_SHUTDOWN), sent=outcome.sent)

    def _due(self, *, takes_key: bool) -> list[Entry]:
        now = time.monotonic()
        waiting = self._aside.values()
        return [e for e in waiting if e[1].due <= now and e[1].takes_key == takes_key]

    @property
    def waits_for_keys(self) -> bool:
        """Does an outcome that sets a unique key wait for its next try?"""
        return any(outcome.takes_key for _, outcome in self._aside.values())

    @property
    def due_at(self) -> float:
        """When to try again; infinite if nothing waits for that."""
        outcomes = [outcome for _, outcome in self._aside.values()]
        dues = [max(o.due, self._keys_at) if o.takes_key else o.due for o in outcomes]
        return min([*dues, self.refused.due_at])

    def pause_keys(self) -> None:
        """Try no unique key for a while, so that other outcomes are written."""
        self._keys_at = time.monotonic() + KEY_PAUSE

    def put_aside(self, entry: Entry) -> None:
        """Try an outcome again a little later: no row is to blame, or it is locked."""
        attempt, outcome = entry
        outcome = outcome.replaced or outcome
        if self.refused.has(attempt):
            self.refused.keep(attempt, outcome)
            return
        other = self._aside.pop(attempt.id, None)
        if other is not None and other[0].claimed_at > attempt.claimed_at:
            self._aside[attempt.id] = other
            self._settle_lost(attempt, outcome)
            return
        if not outcome.pause:
            logger.of(attempt).info("its outcome waits, for a lock, the schema or a right")
        outcome.put_off(*PAUSES)
        self._aside[attempt.id] = (attempt, outcome)  # behind the others

    def keep_refused(self, entry: Entry, error: psycopg.Error) -> None:
        """Try an outcome again later that the server refuses, also as a plain failure."""
        attempt, outcome = entry
        if self.aside(attempt) is not None:
            del self._aside[attempt.id]
        level = logging.ERROR if self._told.is_new(attempt.id) else logging.DEBUG
        message = "its outcome cannot be written now, the job stays running: %s"
        logger.of(attempt).log(level, message, str(error).strip())
        self.refused.keep(attempt, outcome)

    def _settle_stored(self, attempt: Attempt, outcome: Outcome) -> None:
        self._state.let_go(attempt)
        if outcome.status is not None:
            self._state.finished_jobs += 1
        self._on_stored(attempt, outcome)

    def _settle_lost(self, attempt: Attempt, outcome: Outcome) -> None:
        self._state.let_go(attempt)
        if outcome.sent or attempt.in_doubt:
            message = (
                "outcome=%s not written: an answer was lost, and the job has ended, or its claim"
            )
            self._on_doubt(attempt, outcome)
        else:
            message = "outcome=%s not written: the claim is lost, the attempt owns its job no more"
        logger.of(attempt).warning(message, outcome.kind)


def _first(entries: deque[Entry]) -> Attempt | None:
    """Return the attempt of the first entry, whatever other threads do with them."""
    try:
        return entries[0][0]
    except IndexError:
        return None


def meant_by(ids: Collection[int], batch: Sequence[Entry]) -> list[Entry]:
    """Return the outcomes of a batch that the server means by the ids of jobs.

    A worker that has lost a job, and got it again, may have outcomes of both attempts. Only the
    one that it claimed later can still own the job; the numbers of their claims do not tell which.
    """
    latest: dict[int, Attempt] = {}
    for attempt, _ in batch:
        other = latest.get(attempt.id)
        if attempt.id in ids and (other is None or other.claimed_at <= attempt.claimed_at):
            latest[attempt.id] = attempt
    return [entry for entry in batch if latest.get(entry[0].id) is entry[0]]
