"""What is recorded of a job's attempts, as the page of the job shows it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString
from django.utils.timezone import is_aware

from django_pgjobs.admin.job_page.json_html import json_html, printable
from django_pgjobs.admin.job_page.traceback_html import last_project_frame, traceback_html

# Failed attempts that are shown; the worker keeps 25.
MAX_ATTEMPTS = 25
# Characters of markup for the tracebacks of a page; what comes later is in the download.
MAX_TRACEBACKS = 49_152
MAX_MESSAGE = 1_000
# An entry without any of these was not written by a worker, and is shown as it is.
SAYING = frozenset({"exception_class", "message", "traceback"})


class FailedAttempt(NamedTuple):
    """A failed attempt; what the row does not say is None or empty.

    The job got new attempts after one that *is_before_requeue*, and counted from one again.
    """

    number: int | None
    exception: str
    message: str
    worker: str
    started_at: datetime | None
    failed_at: datetime | None
    seconds: float | None
    frame: str
    traceback: SafeString
    is_before_requeue: bool = False


def attempts_of(errors: Any, newest: int) -> list[FailedAttempt]:
    """Return what is recorded of failed attempts, newest first, whatever the row holds.

    *newest* is the number that the last attempt has which has failed, if none before it did.
    """
    entries = errors if isinstance(errors, list) else [errors] if errors else []
    attempts = []
    room = MAX_TRACEBACKS
    most = newest
    for entry in entries[: -MAX_ATTEMPTS - 1 : -1]:
        attempt = _attempt(entry, with_traceback=room > 0)
        room -= len(attempt.traceback)
        number = attempt.number
        if number is not None:
            attempt = attempt._replace(is_before_requeue=number > most)
            most = number - 1
        attempts.append(attempt)
    return attempts


def _attempt(entry: Any, *, with_traceback: bool) -> FailedAttempt:
    if not isinstance(entry, Mapping) or not entry.keys() & SAYING:
        drawn = json_html(entry) if with_traceback else SafeString()
        return FailedAttempt(None, "", "", "", None, None, None, "", drawn)
    number = entry.get("attempt")
    started_at, failed_at = _moment(entry.get("started_at")), _moment(entry.get("failed_at"))
    text = entry.get("traceback")
    text = text if isinstance(text, str) else ""
    return FailedAttempt(
        number if isinstance(number, int) else None,
        _text(entry.get("exception_class")),
        _text(entry.get("message")),
        _text(entry.get("worker")),
        started_at,
        failed_at,
        max(0.0, (failed_at - started_at).total_seconds()) if started_at and failed_at else None,
        printable(last_project_frame(text)),
        traceback_html(text) if text and with_traceback else SafeString(),
    )


def _text(value: Any) -> str:
    return printable(value)[:MAX_MESSAGE] if isinstance(value, str) else ""


def _moment(value: Any) -> datetime | None:
    try:
        found = parse_datetime(value) if isinstance(value, str) else None
    except ValueError:
        return None
    # The first and the last year do not exist in every time zone.
    is_usable = found is not None and is_aware(found) and 1 < found.year < 9999
    return found if is_usable else None
