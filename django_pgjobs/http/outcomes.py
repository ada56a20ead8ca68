"""What a worker over HTTP says of its attempts, as outcomes; and what it is told became of them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django_pgjobs.conf import get_conf
from django_pgjobs.declaring.retries import LONGEST_DELAY_SECONDS
from django_pgjobs.exceptions import (
    Discard,
    JobCancelled,
    JobTimeout,
    PayloadError,
    RemoteFailure,
    Retry,
    Snooze,
)
from django_pgjobs.http.assignments import Assignment, opened
from django_pgjobs.http.fields import Fields
from django_pgjobs.http.memory import memory
from django_pgjobs.http.options import make_options
from django_pgjobs.http.pool import turn
from django_pgjobs.http.progress import write_progress
from django_pgjobs.http.reporting import deliver
from django_pgjobs.queries.remote import Assigned, assigned_rows, send_assigned, send_held
from django_pgjobs.queries.sends import Send
from django_pgjobs.values.moments import instant_text
from django_pgjobs.values.payload import scrub
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.calling import failure, make_attempt, settle, took_too_long
from django_pgjobs.worker.running.outcome import (
    AT_SHUTDOWN,
    Entry,
    Kind,
    Outcome,
    interrupted,
    released,
    success,
)
from django_pgjobs.worker.state import Options

MAX_TYPE, MAX_MESSAGE, MAX_TRACE, MAX_NOTE = 200, 10_000, 100_000, 500
# A text of an error that is longer than is kept loses its middle: a body's limit is its only one.
ANY_LENGTH = sys.maxsize
NOTE = "given back by its worker"
# What the client is told of each kind of outcome that was written.
SAID = {
    Kind.DONE: "stored",
    Kind.FAIL: "failed",
    Kind.RETRY: "retry",
    Kind.CANCEL: "cancelled",
    Kind.SNOOZE: "released",
    Kind.RELEASE: "released",
}
LOST = "lost"
# Its row is locked, or must not be changed: nothing was written, the client is to say it again.
LATER = "later"


class Result(NamedTuple):
    """The attempt returned."""

    value: Any


class Release(NamedTuple):
    """The job is to be given back, *delay* seconds from now (None: at once)."""

    delay: float | None = None
    note: str = ""


Report = Result | RemoteFailure | Release


class Told(NamedTuple):
    """How an assignment ended, and the last progress of it as it is stored, if that was told."""

    sealed: str
    report: Report
    progress: str | None = None


def failure_of(fields: Fields) -> RemoteFailure:
    """Read what a worker says of an attempt that failed."""
    error = fields.object("error")
    kind = error.text("type", max_length=MAX_TYPE)
    message = error.text("message", default="", min_length=0, max_length=ANY_LENGTH)
    trace = error.text("traceback", default="", min_length=0, max_length=ANY_LENGTH)
    retries = fields.flag("retry", default=None)
    after = fields.seconds("retry_after", 0, LONGEST_DELAY_SECONDS, default=None)
    if retries is False and after is not None:
        fields.refuse("retry_after", "retry is false")
    steering: Retry | Discard | None = None
    if retries or after is not None:
        steering = Retry(after=after)
    elif retries is False:
        steering = Discard()
    message, trace = scrub(message, MAX_MESSAGE), scrub(trace, MAX_TRACE)
    return RemoteFailure(kind, message, trace=trace, steering=steering)


def attempt_of(assigned: Assigned, options: Options) -> Attempt:
    """Return the attempt of a job that somebody runs, as if it ran here."""
    attempt = make_attempt(assigned.row, options)
    attempt.claimed_at = attempt.started_at = assigned.row.asked_at - assigned.ran
    attempt.cancelling = assigned.is_cancelling
    return attempt


def outcome_of(attempt: Attempt, report: Report) -> Outcome:
    """Return what becomes of a job, by the rules for what runs in our own workers."""
    if isinstance(report, Result):
        try:
            outcome = success(report.value, get_conf().MAX_PAYLOAD_BYTES)
        except PayloadError as error:
            outcome = failure(attempt, error, make_options())
    elif isinstance(report, RemoteFailure):
        if attempt.cancelling:
            attempt.interrupt(JobCancelled)
        outcome = failure(attempt, report, make_options())
    elif attempt.cancelling:
        return cancelled(attempt)
    elif report.delay:
        outcome = failure(attempt, Snooze(report.delay, report.note), make_options())
    else:
        outcome = released(report.note or NOTE)
    settle(attempt, outcome)
    return outcome


def cancelled(attempt: Attempt) -> Outcome:
    """Return what becomes of a job that was to be cancelled, and that its worker has ended."""
    attempt.interrupt(JobCancelled)
    outcome = failure(attempt, JobCancelled(), make_options())
    settle(attempt, outcome)
    return outcome


def timed_out(attempt: Attempt, timeout: float) -> Outcome:
    """Return what becomes of a job whose worker took longer than it may."""
    attempt.interrupt(JobTimeout)
    error = JobTimeout(took_too_long(timeout))
    outcome = failure(attempt, error, make_options())
    settle(attempt, outcome)
    return outcome


def at_goodbye(attempt: Attempt) -> Outcome:
    """Return what becomes of a job whose worker says goodbye."""
    outcome = interrupted(attempt, AT_SHUTDOWN)
    settle(attempt, outcome)
    return outcome


def store(token_id: int, told: Sequence[Told]) -> list[dict[str, str]]:
    """Write what a worker says of assignments; return what it is told of each, in order."""
    assignments = [opened(each.sealed, token_id) for each in told]
    attempts = _attempts_of(assignments, [each.report for each in told])
    entries: list[Entry | None] = []
    last: list[tuple[Assignment, str]] = []
    for assignment, (_, report, progress) in zip(assignments, told, strict=True):
        # Of one that is named twice the first report counts, and the progress it carries.
        attempt = attempts.pop((assignment.job_id, assignment.claim), None) if assignment else None
        entries.append(None if attempt is None else (attempt, outcome_of(attempt, report)))
        if assignment is not None and attempt is not None and progress is not None:
            last.append((assignment, progress))
    # Before the end, after which an attempt no longer owns its job.
    write_progress(last)
    ends = [entry for entry in entries if entry is not None]
    delivery = deliver(ends)
    # Each mention of one that is to be said again is: the first may not be the one that is kept.
    unwritten = {(a.id, a.claim) for a, _ in ends if a.id in delivery.unwritten}
    return [
        _said(
            None if entry is None else delivery.stored.get(entry[0].id),
            is_unwritten=assignment is not None
            and (assignment.job_id, assignment.claim) in unwritten,
        )
        for assignment, entry in zip(assignments, entries, strict=True)
    ]


def _attempts_of(
    assignments: Iterable[Assignment | None], reports: Iterable[Report]
) -> dict[tuple[int, int], Attempt]:
    """Return the attempts by job and claim, without those that are known to be over."""
    named = [
        ((assignment.job_id, assignment.claim), report)
        for assignment, report in zip(assignments, reports, strict=True)
        if assignment is not None
    ]
    # What was written is told by the ids of jobs. A worker that has got one again may report both
    # of its attempts at once: then the row says which of them is not over.
    claims_of_jobs = Counter(job_id for job_id, _ in {claim for claim, _ in named})
    known: list[Assigned] = []
    claims: list[tuple[int, int]] = []
    for claim, report in named:
        given = memory.take(*claim) if isinstance(report, Result) else None
        if given is None or claims_of_jobs[claim[0]] > 1:
            claims.append(claim)
        else:
            known.append(given)
    options = make_options()
    # What was asked goes before: it may be named twice, and is newer.
    attempts = [attempt_of(assigned, options) for assigned in (*known, *running_under(claims))]
    return {(attempt.id, attempt.claim): attempt for attempt in attempts}


def running_under(claims: Sequence[tuple[int, int]]) -> list[Assigned]:
    """Return the jobs that run under these claims (id, claim)."""
    return _asked(partial(send_assigned, claims=claims)) if claims else []


def held_by(worker_id: int, max_jobs: int) -> list[Assigned]:
    """Return the jobs that a worker runs, the oldest first."""
    return _asked(partial(send_held, worker_id=worker_id, max_jobs=max_jobs))


def _asked(question: Send) -> list[Assigned]:
    asked_at = time.monotonic()
    [rows] = turn([question])
    return assigned_rows(rows, asked_at)


def _said(outcome: Outcome | None, *, is_unwritten: bool) -> dict[str, str]:
    if outcome is None:
        return {"status": LATER if is_unwritten else LOST}
    said = {"status": SAID.get(outcome.kind, "failed")}
    if outcome.kind is Kind.RETRY:
        due_at = datetime.now(UTC) + timedelta(seconds=outcome.delay or 0.0)
        said["due_at"] = instant_text(due_at) or ""
    return said
