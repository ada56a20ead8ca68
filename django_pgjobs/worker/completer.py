"""From outcomes to finishing statements.

Slots add outcomes; the pump takes them in batches and sends one statement per kind. An outcome
leaves this module only when the server has answered: written, or lost to another attempt.
Nothing is forgotten when a connection breaks; an outcome that may already be written is sent
again, which the claim in every WHERE clause makes harmless.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from django_pgjobs.queries import dependencies, jobs
from django_pgjobs.status import JobStatus
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.outcome import Kind, Outcome
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState

logger = get_logger(__name__)

# A busy worker lets outcomes wait this long for company.
LINGER_SECONDS = 0.01
# Outcomes of one round trip: more make its answer late without making it cheaper.
MAX_BATCH = 1_000

# Recorded instead of an outcome that the server refuses.
UNWRITABLE = (
    '{"exception_class": "django_pgjobs.exceptions.PayloadError", "traceback": "",'
    ' "message": "the outcome could not be written; see the worker\'s log", "attempt": 0}'
)

Entry = tuple[Attempt, Outcome]


class Completer:
    """Outcomes on their way to the database."""

    def __init__(self, state: WorkerState, on_stored: Callable[[Attempt, Outcome], None]) -> None:
        self._state = state
        self._on_stored = on_stored
        self._pending: deque[Entry] = deque()
        self._isolated = 0
        # Whose outcomes the last batch left out because they are written already.
        self.already_stored: list[Attempt] = []

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        """Take over an outcome; safe from any thread."""
        self._pending.append((attempt, outcome))

    def oldest_age(self) -> float:
        """Return how long the oldest outcome has waited, in seconds; 0 if none does."""
        try:
            return time.monotonic() - self._pending[0][1].ended_at
        except IndexError:
            return 0.0

    def take(self) -> list[Entry]:
        """Take a batch; outcomes that need no statement are settled at once."""
        batch: list[Entry] = []
        self.already_stored = []
        limit = 1 if self._isolated else MAX_BATCH
        self._isolated = max(0, self._isolated - 1)
        while self._pending and len(batch) < limit:
            attempt, outcome = self._pending.popleft()
            if outcome.kind is Kind.LOST:
                self._settle_lost(attempt, outcome)
            elif outcome.kind is Kind.LEFT:
                self._state.let_go(attempt)
            elif outcome.stored:
                self._settle_stored(attempt, outcome)
                self.already_stored.append(attempt)
            else:
                batch.append((attempt, outcome))
        return batch

    def put_back(self, batch: list[Entry], *, is_sent: bool) -> None:
        """Take a batch back to send it again; *is_sent*: it may be written all the same."""
        for entry in reversed(batch):
            entry[1].sent = entry[1].sent or is_sent
            self._pending.appendleft(entry)

    @property
    def is_isolating(self) -> bool:
        """Is the next outcome to be sent alone, without any other statement?"""
        return self._isolated > 0

    def isolate(self, *, was_alone: bool) -> None:
        """Send the outcomes one by one, because the server refused something of their turn.

        The one that *was_alone* becomes a failure with a plain text, and is dropped if not
        even that can be written.
        """
        if was_alone:
            self._simplify_first()
        else:
            self._isolated = len(self._pending)

    def _simplify_first(self) -> None:
        if not self._pending:
            return
        attempt, outcome = self._pending.popleft()
        if outcome.error == UNWRITABLE:
            logger.error("job=%s its outcome cannot be written; it is left to rescue", attempt.id)
            self._state.unwritable.add(attempt.id)
            self._state.let_go(attempt)
            return
        logger.error("job=%s the server refuses its outcome; it fails instead", attempt.id)
        plain = Outcome(Kind.FAIL, error=UNWRITABLE, ended_at=outcome.ended_at)
        self._pending.appendleft((attempt, plain))
        self._isolated += 1

    def settle(self, batch: list[Entry], written: set[int]) -> None:
        """Note which outcomes of a batch the server has written."""
        for attempt, outcome in batch:
            if attempt.id in written:
                self._settle_stored(attempt, outcome)
            else:
                self._settle_lost(attempt, outcome)

    def _settle_stored(self, attempt: Attempt, outcome: Outcome) -> None:
        self._state.let_go(attempt)
        if outcome.status is not None:
            self._state.finished_jobs += 1
        self._on_stored(attempt, outcome)

    def _settle_lost(self, attempt: Attempt, outcome: Outcome) -> None:
        self._state.let_go(attempt)
        if outcome.sent:
            message = "job=%s outcome=%s was sent before the connection broke, or the claim is lost"
        else:
            message = "job=%s outcome=%s not written: the claim is lost, the job runs elsewhere"
        logger.warning(message, attempt.id, outcome.kind.value)


Send = Callable[[Any], None]


def statements(batch: Sequence[Entry], *, resolves: bool = True) -> list[Send]:
    """Return the functions that send the statements for a batch, each given its cursor.

    Unless *resolves* is false the last one is its `resolution`.
    """
    now = time.monotonic()
    successes: list[jobs.Success] = []
    ends: list[jobs.End] = []
    returns: list[jobs.Return] = []
    for attempt, outcome in batch:
        age = now - outcome.ended_at
        if outcome.kind is Kind.DONE:
            successes.append(
                jobs.Success(attempt.id, attempt.claim, outcome.result, age, outcome.duration)
            )
        elif outcome.status is not None:
            ends.append(_end(attempt, outcome, outcome.status, age))
        else:
            returns.append(_return(attempt, outcome, age))
    sends: list[Send] = []
    if successes:
        sends.append(lambda cursor: jobs.send_successes(cursor, successes))
    if ends:
        sends.append(lambda cursor: jobs.send_ends(cursor, ends))
    if returns:
        sends.append(lambda cursor: jobs.send_returns(cursor, returns))
    if sends and resolves:
        sends.append(resolution(batch))
    return sends


def resolution(batch: Sequence[Entry]) -> Send:
    """Return the function that lets the jobs go on that waited for what a batch has finished.

    Its rows are the queues of those that may run now.
    """
    ids = [attempt.id for attempt, _ in batch]
    return lambda cursor: dependencies.resolve_dependencies(cursor, ids)


def _end(attempt: Attempt, outcome: Outcome, status: JobStatus, age: float) -> jobs.End:
    return jobs.End(
        id=attempt.id,
        claim=attempt.claim,
        status=status.value,
        error=outcome.error,
        note=outcome.note,
        age=age,
        duration=outcome.duration,
    )


def _return(attempt: Attempt, outcome: Outcome, age: float) -> jobs.Return:
    return jobs.Return(
        id=attempt.id,
        claim=attempt.claim,
        delay=outcome.delay,
        counted=outcome.kind is Kind.RETRY,
        interrupted=outcome.interrupted,
        error=outcome.error,
        note=outcome.note,
        age=age,
        duration=outcome.duration,
    )
