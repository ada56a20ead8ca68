"""OpenTelemetry: spans, and the metrics of its conventions for messaging.

Only its API is needed here; the project sets up the SDK.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from django_pgjobs.tracing import conventions as names
from django_pgjobs.tracing.spans import (
    Counted,
    Processing,
    Sending,
    Sent,
    TracedAttempt,
    TracedEnd,
)

# Counts for the worker of this process.
_observed: list[Callable[[], Iterable[Counted]]] = []

HEADERS = ("traceparent", "tracestate", "baggage")


class OpenTelemetry:
    """Spans by OpenTelemetry."""

    def send(self, sent: Sent) -> Sending:
        return OtelSending(sent)

    def process(self, run: TracedAttempt) -> Processing:
        return OtelProcessing(run)

    def observe(self, counted: Callable[[], Iterable[Counted]]) -> None:
        """Let the metrics say what the worker of this process has counted."""
        _observed[:] = [counted]
        _consumed()


class OtelSending:
    """The span of a producer."""

    def __init__(self, sent: Sent) -> None:
        self._began = time.perf_counter()
        self._attributes = _attributes(sent.queue_name, sent.task_path, names.ENQUEUE, "send")
        self._span = _tracer().start_span(
            f"{names.ENQUEUE} {sent.queue_name}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes,
        )
        self._token = context.attach(trace.set_span_in_context(self._span))

    def headers(self) -> dict[str, str]:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return {name: carrier[name] for name in HEADERS if name in carrier}

    def end(self, ids: list[int] | int | None, error: BaseException | None) -> None:
        context.detach(self._token)
        count = ids if isinstance(ids, int) else len(ids or ())
        if isinstance(ids, list) and count == 1:
            self._span.set_attribute(names.MESSAGE_ID, str(ids[0]))
        elif error is None:
            self._span.set_attribute(names.BATCH_COUNT, count)
        attributes = _note_error(self._span, self._attributes, error, is_failure=bool(error))
        self._span.end()
        _sent().add(count, attributes)
        _operations().record(time.perf_counter() - self._began, attributes)


class OtelProcessing:
    """The span of a consumer: a trace of its own, with a link to the producer."""

    def __init__(self, run: TracedAttempt) -> None:
        self._attributes = _attributes(run.queue_name, run.task_path, names.PROCESS, "process")
        details: dict[str, Any] = {
            names.MESSAGE_ID: str(run.id),
            names.ATTEMPT: run.attempt,
            names.MAX_ATTEMPTS: run.max_attempts,
            names.WAITED: run.waited,
        }
        if run.correlation_id:
            details[names.CONVERSATION_ID] = run.correlation_id
        # The baggage of the enqueue goes along.
        found = propagate.extract(run.headers, context=context.Context())
        producer = trace.get_current_span(found).get_span_context()
        self._span = _tracer().start_span(
            f"{names.PROCESS} {run.task_path}",
            context=trace.set_span_in_context(trace.INVALID_SPAN, found),
            kind=SpanKind.CONSUMER,
            attributes=self._attributes | details,
            links=[Link(producer)] if producer.is_valid else [],
        )
        self._token = context.attach(trace.set_span_in_context(self._span, found))

    def end(self, end: TracedEnd) -> None:
        context.detach(self._token)
        attributes = self._attributes | {names.OUTCOME: end.outcome}
        self._span.set_attribute(names.OUTCOME, end.outcome)
        attributes = _note_error(self._span, attributes, end.error, is_failure=end.is_failure)
        self._span.end()
        _processes().record(end.duration, attributes)


def _attributes(queue: str, task: str, operation: str, kind: str) -> dict[str, Any]:
    return {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.DESTINATION_NAME: queue,
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: kind,
        names.TASK: task,
    }


def _note_error(
    span: Span, attributes: dict[str, Any], error: BaseException | None, *, is_failure: bool
) -> dict[str, Any]:
    """Mark the span of what failed; return the attributes of its metrics."""
    if not is_failure:
        return attributes
    kind = "failed" if error is None else f"{type(error).__module__}.{type(error).__qualname__}"
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, kind))
    if error is not None:
        span.record_exception(error)
    return attributes | {names.ERROR_TYPE: kind}


@cache
def _tracer() -> trace.Tracer:
    return trace.get_tracer(names.SCOPE)


@cache
def _meter() -> metrics.Meter:
    return metrics.get_meter(names.SCOPE)


@cache
def _sent() -> metrics.Counter:
    return _meter().create_counter(
        names.SENT_MESSAGES, unit="{message}", description="Jobs that were enqueued."
    )


@cache
def _consumed() -> object:
    """Make the counter that asks the worker; SDKs take it once in the life of a process."""

    def observe(_options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        for counted in _observed:
            for (queue, task), outcome, count in counted():
                attributes = _attributes(queue, task, names.PROCESS, "process")
                yield metrics.Observation(count, attributes | {names.OUTCOME: outcome})

    return _meter().create_observable_counter(
        names.CONSUMED_MESSAGES, [observe], unit="{message}", description="Attempts that ended."
    )


@cache
def _operations() -> metrics.Histogram:
    return _histogram(names.OPERATION_DURATION, "How long it took to enqueue.")


@cache
def _processes() -> metrics.Histogram:
    return _histogram(names.PROCESS_DURATION, "How long attempts ran.")


def _histogram(name: str, description: str) -> metrics.Histogram:
    return _meter().create_histogram(
        name,
        unit="s",
        description=description,
        explicit_bucket_boundaries_advisory=names.DURATION_BOUNDS,
    )
