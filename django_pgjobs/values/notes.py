"""How the notes begin that a worker writes on a job, by which others recognise them."""

from __future__ import annotations

RETRY = "retry after"
SNOOZED = "snoozed"
UNKNOWN_TASK = "unknown task"
REMOTE_TASK = "left to workers over HTTP: its task is remote"
WORKER_LOST = "worker lost"
# Of a job whose row the server refuses to change. The statements that promote, reschedule and
# cancel jobs drop this note, since it is over then.
PASSED_OVER = "passed over: "
NOT_RESCUED = "cannot be rescued: "

_MAX_LENGTH = 1_000


def refused(beginning: str, reason: str) -> str:
    """Return the note of a row that the server refuses to change for a *reason* of its own."""
    return f"{beginning}{reason}"[:_MAX_LENGTH]
