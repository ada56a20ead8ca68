"""The engine's loggers: a line that cannot be written is lost, and nothing else.

A line that never ends, because a task has kept the lock of a handler, stops its thread;
`oldest_call` shows that.

Handlers, filters and formatters are the project's. Python's own handlers report what goes wrong
in them on standard error, which a task may have closed; filters and others raise at once.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import MutableMapping
from typing import Any, Protocol

from django_pgjobs.exceptions import JobInterrupt
from django_pgjobs.values.words import CONTROL
from django_pgjobs.worker.stillness import WAITS

# When the threads that log at the moment began to, by their idents.
_under_way: dict[int, float] = {}


def oldest_call() -> float:
    """Return when the oldest line that is not written yet was begun."""
    return min(list(_under_way.values()), default=WAITS)


class LoggedJob(Protocol):
    """What lines say of a job."""

    id: int
    correlation_id: str


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that raises nothing but the interruption of the job in whose thread it logs."""

    def of(self, job: LoggedJob) -> JobLogger:
        """Return the logger whose lines say which job they are of."""
        return JobLogger(self.logger, job)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log, or say on standard error why not, if that is possible."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            _under_way[threading.get_ident()] = time.monotonic()
            if not _can_be_formatted(kwargs.get("exc_info")):
                kwargs["exc_info"] = None
                msg = f"{msg} (its exception cannot be formatted)"
            super().log(level, msg, *args, **kwargs)
        except JobInterrupt:
            raise
        except BaseException:
            if logging.raiseExceptions:
                with contextlib.suppress(Exception):
                    traceback.print_exc(file=sys.stderr)
        finally:
            _under_way.pop(threading.get_ident(), None)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave the line as it is."""
        return msg, kwargs


class JobLogger(SafeLogger):
    """A logger of lines about one job: `job=12 correlation_id=abc timed out ...`."""

    def __init__(self, logger: logging.Logger, job: LoggedJob) -> None:
        super().__init__(logger, {})
        self._fields = named_job(job)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log *msg* behind what names the job; the fields are in the record as well."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        names = " ".join(f"{name}={value}" for name, value in self._fields.items())
        template = "%s " + str(msg)
        extra = {"pgjobs": self._fields}
        super().log(level, template, names.translate(CONTROL), *args, extra=extra, **kwargs)


def _can_be_formatted(exc_info: Any) -> bool:
    """Can handlers format what they are to log, as Logger.log() takes it?

    If not, they lose the whole line. What breaks is the exception's own (its causes, its notes),
    so the frames are left out.
    """
    if exc_info is True:
        exc_info = sys.exc_info()
    error = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if not isinstance(error, BaseException):
        return True
    try:
        traceback.format_exception(type(error), error, None, limit=0)
    except JobInterrupt:
        raise
    except BaseException:  # the exception is the project's code
        return False
    return True


def named_job(job: LoggedJob) -> dict[str, Any]:
    """Return the fields by which lines name a job."""
    named: dict[str, Any] = {"job": job.id}
    return named | {"correlation_id": job.correlation_id} if job.correlation_id else named


def get_logger(name: str) -> SafeLogger:
    """Return the logger *name* for the engine."""
    return SafeLogger(logging.getLogger(name), {})
