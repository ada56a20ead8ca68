"""Tasks that say in which trace they run."""

from __future__ import annotations

from typing import Any

from opentelemetry import baggage, trace

from django_pgjobs import Retry, current_job, task


def _said() -> list[Any]:
    found = trace.get_current_span().get_span_context().trace_id
    return [trace.format_trace_id(found), baggage.get_baggage("tenant")]


@task
def say_trace() -> list[Any]:
    """Return the trace and the tenant, in a thread."""
    return _said()


@task
async def say_trace_async() -> list[Any]:
    """Return the trace and the tenant, on the event loop."""
    return _said()


@task(max_attempts=2, backoff=[0])
def ask_again() -> None:
    """Ask for another attempt, and fail in that."""
    if current_job().attempt == 1:
        raise Retry(after=0)
    raise ValueError("no more")
