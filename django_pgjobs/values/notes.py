"""How the notes begin that a worker writes on a job, by which others recognise them."""

from __future__ import annotations

import re

RETRY = "retry after"
SNOOZED = "snoozed"
UNKNOWN_TASK = "unknown task"
REMOTE_TASK = "left to workers over HTTP: its task is remote"
WORKER_LOST = "worker lost"
# Of a job whose row the server refuses to change. The statements that promote, reschedule and
# cancel jobs drop this note, since it is over then.
PASSED_OVER = "passed over: "
NOT_RESCUED = "cannot be rescued: "
# Of a job that ended with one that it waited for: resolve.sql writes it.
CULPRIT = re.compile(r"cancelled: job [0-9]+, which it waited for, failed")
# Of one that came later than another with its key; with the id of that.
YIELDED = "cancelled: job %s has its unique key"
TWIN = re.compile(YIELDED % "[0-9]+")

_MAX_LENGTH = 1_000


def refused(beginning: str, reason: str) -> str:
    """Return the note of a row that the server refuses to change for a *reason* of its own."""
    return f"{beginning}{reason}"[:_MAX_LENGTH]


def without_others(note: str) -> str:
    """Return a note as it is told to who may not see the jobs that it names."""
    note = CULPRIT.sub("cancelled: a job which it waited for failed", note)
    return TWIN.sub("cancelled: another job has its unique key", note)
