"""Why a job that was to be changed stayed as it was, in words of the terminal and of the admin.

The admin translates them: `admin/refusals.py` knows what is said here.
"""

from __future__ import annotations

from collections.abc import Callable

from django_pgjobs.queries import batch_retries
from django_pgjobs.queries.cursor import Cursor

# Says it of a job whose status is still one that can be changed.
Why = Callable[[Cursor, int], str]


def why_locked(cursor: Cursor, job_id: int) -> str:
    """Return why a job is passed over that nothing else keeps."""
    return "locked by another transaction. Try again when that has ended."


def why_not_deleted(cursor: Cursor, job_id: int) -> str:
    """Return what keeps a finished job from being deleted."""
    return "an open workflow or a waiting job needs it, or another transaction has locked it."


def why_not_requeued(cursor: Cursor, job_id: int) -> str:
    """Return what keeps a finished job from new attempts."""
    return requeue_refusal(cursor, job_id) or why_locked(cursor, job_id)


def requeue_refusal(cursor: Cursor, job_id: int) -> str:
    """Return why a finished job never gets new attempts by itself, "" if its batch lets it."""
    refusal = batch_retries.find_requeue_refusals(cursor, [job_id]).get(job_id)
    if refusal is None:
        return ""
    batch = f"its batch {refusal.batch_id}"
    if refusal.is_deleting:
        return f"the workflow of {batch} is being deleted."
    return f"{batch} was cancelled. Retry that."
