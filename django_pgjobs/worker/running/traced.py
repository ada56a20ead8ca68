"""An attempt as its traces show it."""

from __future__ import annotations

from django_pgjobs.exceptions import Retry
from django_pgjobs.tracing.headers import headers_of_detail, is_tracing
from django_pgjobs.tracing.processing import AttemptTrace
from django_pgjobs.tracing.spans import TracedAttempt, TracedEnd
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome

# The words of `pgjobs.outcome`: those of statistics and metrics, for what these count.
_WORDS = {
    Kind.DONE: "successful",
    Kind.FAIL: "failed",
    Kind.CANCEL: "cancelled",
    Kind.EXPIRE: "cancelled",
    Kind.RETRY: "retried",
    Kind.SNOOZE: "snoozed",
    Kind.RELEASE: "released",
}


def begin_trace(attempt: Attempt) -> AttemptTrace | None:
    """Begin the trace of an attempt in this context, if the settings ask for it."""
    if not is_tracing():
        return None
    row = attempt.row
    trace = AttemptTrace(
        TracedAttempt(
            attempt.id,
            row.task_path,
            row.queue_name,
            attempt.attempt,
            attempt.max_attempts,
            attempt.waited,
            attempt.correlation_id,
            headers_of_detail(row.detail),
        )
    )
    attempt.trace = trace
    return trace


def end_trace(trace: AttemptTrace | None, outcome: Outcome) -> None:
    """End the trace of an attempt that came to this, in the context in which it began."""
    if trace is None:
        return
    error = outcome.exception
    # A task that asks for another attempt has not failed, unless there is none left.
    asks = outcome.kind is Kind.RETRY and isinstance(error, Retry)
    is_failure = outcome.kind in (Kind.FAIL, Kind.RETRY) and not asks
    word = _WORDS.get(outcome.kind, outcome.kind.lower())
    trace.end(TracedEnd(word, outcome.duration, is_failure, error))
