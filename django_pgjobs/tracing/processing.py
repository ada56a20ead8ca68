"""Traces of attempts."""

from __future__ import annotations

import contextvars
from collections.abc import Callable

from django_pgjobs.tracing.spans import Processing, TracedAttempt, TracedEnd
from django_pgjobs.tracing.tracers import guarded, tracers


class AttemptTrace:
    """The spans of an attempt, and the context in which they are the current ones.

    They begin when it is made. What is logged of the attempt after its end is logged in that
    context: trackers of errors that take records of the log find the trace.
    """

    def __init__(self, run: TracedAttempt) -> None:
        self._spans: list[Processing] = []
        for tracer in tracers():
            span = guarded("attempt", lambda: tracer.process(run))  # noqa: B023
            if span is not None:
                self._spans.append(span)
        self._context = contextvars.copy_context()

    def end(self, end: TracedEnd) -> None:
        """End the spans, in the context in which they began."""
        for span in reversed(self._spans):
            guarded("attempt", lambda: span.end(end))  # noqa: B023

    def run(self, function: Callable[[], None]) -> None:
        """Call a function as if in the attempt."""
        self._context.run(function)
