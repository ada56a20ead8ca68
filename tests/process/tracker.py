"""Sees what a tracker of errors sees in a worker: every record, whatever handlers there are."""

from __future__ import annotations

import json
import logging
import sys

_call_handlers = logging.Logger.callHandlers


def _look(self: logging.Logger, record: logging.LogRecord) -> None:
    # As Sentry does: records of errors are events, grouped by their exception or their template.
    if record.levelno >= logging.ERROR:
        raised = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        event = {"logger": record.name, "template": record.msg, "raised": raised}
        sys.stderr.write(f"EVENT {json.dumps(event)}\n")
    _call_handlers(self, record)


logging.Logger.callHandlers = _look  # type: ignore[method-assign]
