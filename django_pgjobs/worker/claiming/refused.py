"""Outcomes that the server refuses, also as plain failures: their rows are to blame.

They are kept until the server lets them be written, and take up no slot meanwhile. To try many of
them takes a statement or more for each, so they are tried beside the other work: a page at a time,
in statements of their own, for a small part of the pump's time.

None is dropped, so no more jobs of a task are claimed that has too many of them.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import psycopg

from django_pgjobs.exceptions import PayloadError
from django_pgjobs.queries.errors import is_too_large, is_untranslatable
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.outcome import Entry, Kind, Outcome
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import WorkerState

logger = get_logger(__name__)

# One is tried again after the first pause, which doubles up to the second.
PAUSES = (1.0, 60.0)
# So many are tried together.
PAGE = 8
# The part of its time that the pump may spend on those that are refused again.
SHARE = 0.1
# From so many of a task on its jobs wait.
MOST_KEPT = 1_000

# Recorded instead of an outcome that the server refuses.
UNWRITABLE = {
    "exception_class": "django_pgjobs.exceptions.PayloadError",
    "message": "the outcome could not be written; see the worker's log",
    "traceback": "",
}
# The same, if it is refused for what a batch makes of it.
TOO_LARGE = (
    "what each() or each_item() makes of the result takes more than 1 MiB: the result, or an "
    "element of it, with the arguments of the call that follows. Store what is large elsewhere, "
    "and return, or pass to the call, where it is."
)


class RefusedOutcomes:
    """The refused outcomes of one worker, the longest waiting first; the pump alone calls it."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        # By the ids of their jobs.
        self._entries: dict[int, Entry] = {}
        # When the next page may be tried, and when one is due; None: to be looked up.
        self._rests_until = 0.0
        self._first_due: float | None = math.inf

    def __len__(self) -> int:
        return len(self._entries)

    def has(self, attempt: Attempt) -> bool:
        """Is an outcome of this attempt kept?"""
        entry = self._entries.get(attempt.id)
        return entry is not None and entry[0] is attempt

    def keep(self, attempt: Attempt, outcome: Outcome) -> None:
        """Try an outcome again later; nothing here waits for its attempt any more.

        Of two attempts of a job only the later one can still own it.
        """
        self._state.unwritable.add(attempt.id)
        self._state.let_go(attempt)
        former = self._entries.pop(attempt.id, None)  # to go behind the others
        if former is not None and former[0].claimed_at > attempt.claimed_at:
            self._entries[attempt.id] = former
            return
        outcome.put_off(*PAUSES)
        self._entries[attempt.id] = (attempt, outcome)
        self._note_change()

    def drop(self, attempt: Attempt) -> None:
        """Forget the outcome of an attempt, if it is kept: the server has answered."""
        if self.has(attempt):
            del self._entries[attempt.id]
            self._state.unwritable.discard(attempt.id)
            self._note_change()

    def _note_change(self) -> None:
        self._first_due = None
        paths: set[str] = set()
        if len(self) >= MOST_KEPT:
            kept = Counter(attempt.row.task_path for attempt, _ in self._entries.values())
            paths = {path for path, jobs in kept.items() if jobs >= MOST_KEPT}
        for path in paths - self._state.refused_paths:
            message = "task=%s the outcomes of so many jobs are refused that no more are claimed"
            logger.error(message, path)
        self._state.refused_paths = paths

    # Trying again

    @property
    def due_at(self) -> float:
        """When to try again; infinite if nothing waits for that."""
        if self._first_due is None:
            dues = (outcome.due for _, outcome in self._entries.values())
            self._first_due = min(dues, default=math.inf)
        return max(self._first_due, self._rests_until)

    def due(self) -> list[Entry]:
        """Return what is to be tried now; it stays here until it is dropped."""
        now = time.monotonic()
        if self.due_at > now:
            return []
        return list(islice((e for e in self._entries.values() if e[1].due <= now), PAGE))

    def all(self) -> list[Entry]:
        """Return everything, to be tried a last time."""
        return list(self._entries.values())

    def note_tried(self, page: Sequence[Entry], seconds: float) -> None:
        """Note that a page was tried, which took so long."""
        if any(self.has(attempt) for attempt, _ in page):
            self._rests_until = time.monotonic() + seconds * (1 / SHARE - 1)


def plain_failure(entry: Entry, error: psycopg.Error) -> Entry | None:
    """Return what is to be written instead of an outcome that the server refuses.

    None for a job that was only to be given back before it had begun: it has not failed. One whose
    words the database cannot hold, because its encoding is not UTF-8, says them in ASCII.
    """
    attempt, outcome = entry
    if is_untranslatable(error) and (outcome.error or outcome.note):
        return attempt, _in_ascii(outcome)
    if outcome.kind is Kind.RELEASE and not attempt.started_at:
        return None
    said = UNWRITABLE
    if is_too_large(error) and outcome.kind is Kind.DONE and attempt.row.batch_id is not None:
        said = UNWRITABLE | {"message": TOO_LARGE}
    return attempt, Outcome(
        Kind.FAIL,
        error=json.dumps(said | {"attempt": attempt.attempt}),
        exception=PayloadError(said["message"]),
        duration=outcome.duration,
        ended_at=outcome.ended_at,
        replaced=outcome,
    )


def _in_ascii(outcome: Outcome) -> Outcome:
    def escaped(text: str) -> str:
        return text.encode("ascii", "backslashreplace").decode()

    error = outcome.error
    if error:
        entry = {k: escaped(v) if isinstance(v, str) else v for k, v in json.loads(error).items()}
        error = json.dumps(entry)
    return replace(outcome, error=error, note=escaped(outcome.note), replaced=outcome)
