"""Is anybody listening to a signal of django.tasks?

Django connects a receiver of its own to each, which only logs. Building a TaskResult for it
costs more than the rest of a job's bookkeeping, so it is done when the log line would be
written or when somebody else is connected.
"""

from __future__ import annotations

import logging

from django.dispatch import Signal

from django_pgjobs.compat import TASKS_PACKAGE, task_enqueued, task_finished, task_started

_logger = logging.getLogger(TASKS_PACKAGE)
_LEVELS = {id(task_enqueued): logging.DEBUG, id(task_started): logging.INFO}


def has_receivers(signal: Signal, *, failed: bool = False) -> bool:
    """Would sending *signal* reach anybody? *failed* tells it for the finish of a failure."""
    level = logging.ERROR if failed else _LEVELS.get(id(signal), logging.INFO)
    return len(signal.receivers) > 1 or _logger.isEnabledFor(level)


__all__ = ["has_receivers", "task_enqueued", "task_finished", "task_started"]
