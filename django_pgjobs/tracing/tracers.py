"""The tracers, and calling them so that one that raises stops nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from django_pgjobs.conf import get_conf
from django_pgjobs.tracing.spans import Counted, Tracer

logger = logging.getLogger("django_pgjobs.tracing")

if TYPE_CHECKING:
    from django_pgjobs.tracing.otel import OpenTelemetry

T = TypeVar("T")

LACKING = (
    "PGJOBS[%r] is on, but %s cannot be imported: nothing is traced by it. pip install %s, or "
    "turn it off."
)

# What was raised, and logged.
_told: set[tuple[str, str]] = set()


def tracers() -> Iterator[Tracer]:
    """Yield the tracers that the settings ask for, as far as they are installed."""
    conf = get_conf()
    if conf.OPENTELEMETRY:
        yield from _load_opentelemetry()
    if conf.SENTRY_TRACING:
        yield from _load_sentry()


def _load_opentelemetry() -> list[OpenTelemetry]:
    try:
        from django_pgjobs.tracing.otel import OpenTelemetry

        return [OpenTelemetry()]
    except Exception:  # of a package that is there, and broken
        _tell_that_it_lacks("OPENTELEMETRY", "opentelemetry", "opentelemetry-api")
        return []


def observe(counted: Callable[[], Iterable[Counted]]) -> None:
    """Let the metrics of OpenTelemetry say what a worker counts, if the settings ask for it."""
    if get_conf().OPENTELEMETRY:
        for tracer in _load_opentelemetry():
            guarded("totals", lambda: tracer.observe(counted))  # noqa: B023


def _load_sentry() -> list[Tracer]:
    try:
        from django_pgjobs.tracing.sentry import Sentry

        return [Sentry()]
    except Exception:
        _tell_that_it_lacks("SENTRY_TRACING", "sentry_sdk", "sentry-sdk")
        return []


@cache
def _tell_that_it_lacks(setting: str, module: str, package: str) -> None:
    """Say it in the log, once in the life of the process."""
    logger.error(LACKING, setting, module, package)


def guarded(what: str, function: Callable[[], T]) -> T | None:
    """Return what a function of a tracer returns, None if it raises."""
    try:
        return function()
    except Exception as error:
        kind = what, repr(type(error))
        if kind not in _told:
            # Once: it would come with every job.
            _told.add(kind)
            logger.warning("what traces jobs raised, at the %s", what, exc_info=True)
        return None
