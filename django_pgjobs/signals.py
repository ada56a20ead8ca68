"""Is anybody listening to a signal of django.tasks?

Django connects a receiver of its own to each, which only logs, and by default to no handler
that writes anything. Building a TaskResult for it would cost more than the rest of a job's
bookkeeping, so signals are sent when somebody else is connected or the line would be written.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress

from django.dispatch import Signal

from django_pgjobs.compat import TASKS_PACKAGE, task_enqueued, task_finished, task_started

_logger = logging.getLogger(TASKS_PACKAGE)
_LEVELS = {id(task_enqueued): logging.DEBUG, id(task_started): logging.INFO}

# The answer for a log level is good for this long.
ANSWER_SECONDS = 1.0
_answers: dict[int, tuple[float, bool]] = {}


def has_receivers(signal: Signal, *, failed: bool = False) -> bool:
    """Would sending *signal* have an effect? *failed* tells it for the finish of a failure."""
    if len(signal.receivers) > 1:
        return True
    level = logging.ERROR if failed else _LEVELS.get(id(signal), logging.INFO)
    asked_at, answer = _answers.get(level, (0.0, False))
    now = time.monotonic()
    if now - asked_at > ANSWER_SECONDS:
        answer = _is_written(level)
        _answers[level] = (now, answer)
    return answer


def _is_written(level: int) -> bool:
    """Would any handler write a record of django.tasks of this level?"""
    if not _logger.isEnabledFor(level):
        return False
    record = _logger.makeRecord(_logger.name, level, __file__, 0, "", (), None)
    logger: logging.Logger | None = _logger
    while logger is not None:
        for handler in logger.handlers:
            # A filter is the project's; what raises in it writes nothing.
            with suppress(Exception):
                if level >= handler.level and handler.filter(record):
                    return True
        logger = logger.parent if logger.propagate else None
    return False


class _NotTwice(logging.Filter):
    """Drops what Django says in a thread that tells of jobs with a line of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.here = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        is_told = getattr(self.here, "is_told", False)
        return not is_told or _logger.level != logging.NOTSET


_not_twice = _NotTwice()
_logger.addFilter(_not_twice)


def leave_out_lines_of_django() -> None:
    """Let Django log nothing of what this thread sends, unless the project set its level.

    `runjobs` says so for its process; in one that serves the web Django logs other tasks, too.
    """
    _not_twice.here.is_told = True


# Sent when a person has done something in the admin, by `send_robust`, with: user; action, such
# as "requeue"; selection, the lookups of a bulk change or {}; count, of jobs, None if unknown;
# reason; site, the AdminSite or None. The sender is the class of what was acted on.
admin_action_performed = Signal()

# Sent once for each workflow before its jobs are deleted, by a worker: batch, the Batch at the
# root. The sender is Batch. While a receiver raises, nothing is deleted, and it is sent again.
workflow_expiring = Signal()

__all__ = [
    "admin_action_performed",
    "has_receivers",
    "leave_out_lines_of_django",
    "task_enqueued",
    "task_finished",
    "task_started",
    "workflow_expiring",
]
