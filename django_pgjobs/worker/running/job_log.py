"""The worker's log lines: one event per line, `key=value`, never arguments or results."""

from __future__ import annotations

import json
import logging
import math
import textwrap
import time
from collections.abc import Collection
from copy import copy
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any

from django_pgjobs.compat import TASKS_PACKAGE
from django_pgjobs.exceptions import RemoteFailure, Retry
from django_pgjobs.queries.expiry import EXPIRED, Expired
from django_pgjobs.queries.jobs import Rescued
from django_pgjobs.status import JobStatus
from django_pgjobs.values.moments import logged_duration
from django_pgjobs.values.words import CONTROL, IN_LINES, with_text
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.running.outcome import Kind, Outcome, traceback_of
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger("django_pgjobs.worker")

LEVELS = {
    Kind.DONE: logging.INFO,
    Kind.FAIL: logging.ERROR,
    Kind.RETRY: logging.WARNING,
    Kind.EXPIRE: logging.WARNING,
    Kind.LOST: logging.WARNING,
    Kind.LEFT: logging.WARNING,
}

# What a line says of a job. A number is a length of time in seconds.
Fields = dict[str, str | float]

# One constant text for each kind of line: error trackers group by it if there is no exception.
TEMPLATES = {event: event.ljust(7) + " %s #%d %s" for event in ("start", "rescue", *Kind)}


def log_start(attempt: Attempt, worker: str) -> None:
    """Log that an attempt begins."""
    if logger.isEnabledFor(logging.INFO):
        fields = _fields(attempt, worker) | {"waited": _seconds(attempt.row.waited)}
        _log(logging.INFO, "start", attempt.id, attempt.row.task_path, fields)


def log_outcome(attempt: Attempt, outcome: Outcome, worker: str | None) -> None:
    """Log what an attempt came to, as if in it, if it is traced.

    *worker* None: a web process, which is none, writes what one over HTTP has told.
    """
    if attempt.trace is None:
        _log_outcome(attempt, outcome, worker)
    else:
        attempt.trace.run(partial(_log_outcome, attempt, outcome, worker))


def _log_outcome(attempt: Attempt, outcome: Outcome, worker: str | None) -> None:
    level = LEVELS.get(outcome.kind, logging.INFO)
    if not logger.isEnabledFor(level):
        return
    fields = _fields(attempt, worker) | {"ran": _seconds(outcome.duration)}
    if outcome.delay is not None:
        fields["again_in"] = _seconds(outcome.delay)
    if outcome.exception is not None:
        fields["error"] = _one_line(outcome.exception)
    elif outcome.note:
        fields["note"] = outcome.note
    error = outcome.exception if _shows_where(outcome) else None
    _log(level, outcome.kind, attempt.id, attempt.row.task_path, fields, error)


def _shows_where(outcome: Outcome) -> bool:
    """Does its line have a traceback? Of a mistake that is repeated, for who asked for more."""
    if outcome.kind is Kind.RETRY:
        return logger.isEnabledFor(logging.DEBUG) and not isinstance(outcome.exception, Retry)
    return outcome.kind is Kind.FAIL


def log_rescue(job: Rescued, worker: str | None) -> None:
    """Log that *worker*, or a web process (None), took a job from a lost one."""
    fields: Fields = {"attempt": str(job.attempts), "queue": job.queue_name}
    fields |= _of_worker(worker)
    # The row of a running job may name no worker.
    fields["lost_worker"] = "-" if job.worker_id is None else f"#{job.worker_id}"
    fields |= {"status": job.status} | _correlation(job.correlation_id)
    level = logging.ERROR if job.status == JobStatus.FAILED else logging.WARNING
    _log(level, "rescue", job.id, job.task_path, fields)


def log_expiry(job: Expired, worker: str) -> None:
    """Log that *worker* ended a waiting job that had expired."""
    fields: Fields = {"attempt": str(job.attempts), "queue": job.queue_name}
    fields |= _of_worker(worker)
    fields |= _correlation(job.correlation_id) | {"note": EXPIRED}
    _log(LEVELS[Kind.EXPIRE], Kind.EXPIRE, job.id, job.task_path, fields)


def log_stop(reason: str, running: Collection[Attempt], timeout: float) -> None:
    """Log that the worker stops, and what it waits for."""
    waiting = " nothing runs"
    if running:
        oldest = min(running, key=lambda attempt: attempt.started_at)
        ran = logged_duration(time.monotonic() - oldest.started_at)
        waiting = (
            f" waiting for {len(running)} (longest {oldest.row.task_path} #{oldest.id}, "
            f"{ran}); deadline {timeout:g}s"
        )
    logger.info("stop    %s: no new jobs;%s", reason, waiting)


def _fields(attempt: Attempt, worker: str | None) -> Fields:
    fields: Fields = {
        "attempt": f"{attempt.attempt}/{attempt.max_attempts}",
        "queue": attempt.queue_name,
    }
    return fields | _of_worker(worker) | _correlation(attempt.correlation_id)


def _of_worker(name: str | None) -> Fields:
    return {} if name is None else {"worker": name}


def _correlation(correlation_id: str) -> Fields:
    return {"correlation_id": correlation_id} if correlation_id else {}


def _log(
    level: int,
    event: str,
    job_id: int,
    task_path: str,
    fields: Fields,
    error: BaseException | None = None,
) -> None:
    text = " ".join(f"{key}={_in_line(value)}" for key, value in fields.items())
    extra = {"event": str(event), "job": job_id, "task": task_path, **fields}
    logger.log(
        level,
        TEMPLATES[event],
        task_path.translate(CONTROL),
        job_id,
        text.translate(CONTROL),
        exc_info=None if error is None else (type(error), error, _traceback(error)),
        extra={"pgjobs": extra},
    )


def _seconds(length: float) -> str | float:
    # JSON knows no infinity, which a row may hold.
    return round(length, 3) if math.isfinite(length) else logged_duration(length)


def _in_line(value: str | float) -> str:
    return value if isinstance(value, str) else logged_duration(value)


def _traceback(error: BaseException) -> TracebackType | None:
    try:
        return traceback_of(error)
    except BaseException:  # everything about an exception can be broken
        return None


def _one_line(error: BaseException) -> str:
    if isinstance(error, RemoteFailure):
        return with_text(error.kind, error)[:200]
    try:
        text = with_text(type(error).__qualname__, error)
    except BaseException:  # its __str__ is the project's code
        text = type(error).__qualname__
    return text[:200]


class TextFormatter(logging.Formatter):
    """`18:47:03.118 done    shop.tasks.send_welcome #12 attempt=1/25 ...`."""

    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s", datefmt=None)
        self.default_time_format = "%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and the traceback if there is one.

        Formatters leave the traceback's text in the record for the others, in their own form.
        """
        record = copy(record)
        record.exc_text = None
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the event on one line, whatever a row or the server says."""
        return super().formatMessage(record).translate(CONTROL)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return the traceback indented, so that no line of it looks like an event."""
        text = super().formatException(ei).translate(IN_LINES)
        return textwrap.indent(text, "    ")


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= getattr(record, "pgjobs", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


VERBOSITY = {0: logging.ERROR, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


def set_up_logging(verbosity: int, log_format: str) -> None:
    """Write the worker's log lines to stderr, unless the project has handlers for them.

    Django's own line per started, finished and failed task would say the same again, at the
    price of reading the job's row; it is left out unless the project set that logger's level. So
    there is one line with the exception of each job that fails.
    """
    ours = logging.getLogger("django_pgjobs")
    ours.setLevel(VERBOSITY[verbosity])
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    # Lines of their own, about broken connections, about what async jobs leave on the event loop.
    for other in (logging.getLogger("psycopg"), logging.getLogger("asyncio")):
        if not other.hasHandlers():
            other.addHandler(handler)
            other.setLevel(max(logging.WARNING, VERBOSITY[verbosity]))
    if not ours.handlers:
        ours.addHandler(handler)
        ours.propagate = False
    tasks = logging.getLogger(TASKS_PACKAGE)
    if tasks.level == logging.NOTSET:
        tasks.setLevel(logging.CRITICAL)
