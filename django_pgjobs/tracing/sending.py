"""Traces of enqueues: a span around the INSERT, and its headers in the rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from django_pgjobs.tracing.headers import bounded, is_tracing
from django_pgjobs.tracing.spans import Sending, Sent
from django_pgjobs.tracing.tracers import guarded, tracers

# The spans of the enqueue that is under way.
_current: ContextVar[tuple[Sending, ...]] = ContextVar("pgjobs_sending", default=())


class InsertedIds:
    """What was inserted, for the spans to say."""

    ids: list[int] | int | None = None


def sending(task_path: str, queue_name: str) -> AbstractContextManager[InsertedIds]:
    """Trace the block as an enqueue, if the settings ask for it; it notes what it inserted."""
    return _traced(task_path, queue_name) if is_tracing() else nullcontext(InsertedIds())


@contextmanager
def _traced(task_path: str, queue_name: str) -> Iterator[InsertedIds]:
    inserted = InsertedIds()
    begun = [
        guarded("enqueue", lambda: each.send(Sent(task_path, queue_name)))  # noqa: B023
        for each in tracers()
    ]
    spans = tuple(each for each in begun if each is not None)
    token = _current.set(spans)
    error: BaseException | None = None
    try:
        yield inserted
    except BaseException as raised:
        error = raised
        raise
    finally:
        _current.reset(token)
        for span in reversed(spans):
            guarded("enqueue", lambda: span.end(inserted.ids, error))  # noqa: B023


def current_headers() -> dict[str, str]:
    """Return what the jobs that are being enqueued are to keep of the trace, empty for nothing."""
    headers: dict[str, str] = {}
    for span in _current.get():
        headers |= guarded("headers", span.headers) or {}
    return bounded(headers)
