"""Sentry: a transaction for each attempt, in the trace of its enqueue.

No event is sent from here. A job that fails for good is one ERROR record of the worker's log, which
Sentry takes as it takes those of all loggers; it is logged in the attempt's scope, so the event has
its trace, transaction and tags.
"""

from __future__ import annotations

from contextlib import ExitStack

import sentry_sdk

from django_pgjobs.tracing import conventions as names
from django_pgjobs.tracing.spans import Processing, Sending, Sent, TracedAttempt, TracedEnd

# The names of the headers in the row, where OpenTelemetry's may be, too, and for Sentry.
HEADERS = {"sentry-trace": "sentry-trace", "sentry-baggage": "baggage"}


class Sentry:
    """Transactions and spans by Sentry."""

    def send(self, sent: Sent) -> Sending:
        return SentrySending(sent)

    def process(self, run: TracedAttempt) -> Processing:
        return SentryProcessing(run)


class SentrySending:
    """The span of an enqueue."""

    def __init__(self, sent: Sent) -> None:
        self._stack = ExitStack()
        self._span = self._stack.enter_context(
            sentry_sdk.start_span(
                op=names.SENTRY_PUBLISH, name=sent.task_path, origin=names.SENTRY_ORIGIN
            )
        )
        self._span.set_data(names.MESSAGING_SYSTEM, names.SYSTEM)
        self._span.set_data(names.DESTINATION_NAME, sent.queue_name)

    def headers(self) -> dict[str, str]:
        found = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
        return {ours: value for ours, theirs in HEADERS.items() if (value := found[theirs])}

    def end(self, ids: list[int] | int | None, error: BaseException | None) -> None:
        if isinstance(ids, list) and len(ids) == 1:
            self._span.set_data(names.MESSAGE_ID, str(ids[0]))
        if error is not None:
            self._span.set_status("internal_error")
        self._stack.close()


class SentryProcessing:
    """The transaction of an attempt, in a scope of its own."""

    def __init__(self, run: TracedAttempt) -> None:
        self._stack = ExitStack()
        scope = self._stack.enter_context(sentry_sdk.isolation_scope())
        scope.clear_breadcrumbs()
        scope.set_transaction_name(run.task_path, source="task")
        scope.set_tag("queue", run.queue_name)
        scope.set_tag("task", run.task_path)
        headers = {
            theirs: run.headers[ours] for ours, theirs in HEADERS.items() if ours in run.headers
        }
        transaction = sentry_sdk.continue_trace(
            headers,
            op=names.SENTRY_PROCESS,
            name=run.task_path,
            source="task",
            origin=names.SENTRY_ORIGIN,
        )
        self._transaction = self._stack.enter_context(sentry_sdk.start_transaction(transaction))
        for name, value in {
            names.MESSAGING_SYSTEM: names.SYSTEM,
            names.DESTINATION_NAME: run.queue_name,
            names.MESSAGE_ID: str(run.id),
            names.RECEIVE_LATENCY: round(1000 * run.waited),
            names.RETRY_COUNT: run.attempt - 1,
        }.items():
            self._transaction.set_data(name, value)

    def end(self, end: TracedEnd) -> None:
        self._transaction.set_data(names.OUTCOME, end.outcome)
        self._transaction.set_status("internal_error" if end.is_failure else "ok")
        self._stack.close()
