"""The engine's loggers: a line that cannot be written is lost, and nothing else.

A line that takes for ever, because a task has kept the lock of a handler, stops its thread; that
it does can be seen by `oldest_call`.

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
from typing import Any

from django_pgjobs.exceptions import JobInterrupt
from django_pgjobs.worker.stillness import WAITS

# When the threads that log at the moment began to, by their idents.
_under_way: dict[int, float] = {}


def oldest_call() -> float:
    """Return when the oldest line that is not written yet was begun."""
    return min(list(_under_way.values()), default=WAITS)


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that raises nothing but the interruption of the job in whose thread it logs."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log, or say on standard error why not, if that is possible."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        try:
            _under_way[threading.get_ident()] = time.monotonic()
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


def get_logger(name: str) -> SafeLogger:
    """Return the logger *name* for the engine."""
    return SafeLogger(logging.getLogger(name), {})
