"""What may not be claimed: pauses, and the statements that change them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django_pgjobs.queries.cursor import Cursor, fetch


class PauseRow(NamedTuple):
    """A pause that holds now, of a queue, a task or a key; *resume_at* None: it does not end."""

    kind: str
    name: str
    reason: str
    paused_by: str
    paused_at: datetime
    resume_at: datetime | None


def pause_jobs(
    cursor: Cursor,
    kind: str,
    name: str,
    *,
    reason: str,
    paused_by: str,
    resume_at: datetime | None,
    delay: float | None,
) -> bool:
    """Pause something until *resume_at* or for *delay* seconds; return whether that is new."""
    params = {
        "kind": kind,
        "name": name,
        "reason": reason,
        "paused_by": paused_by,
        "resume_at": resume_at,
        "delay": delay,
    }
    return bool(fetch(cursor, "pause_jobs", params))


def resume_jobs(cursor: Cursor, kind: str, name: str) -> bool:
    """End a pause; return whether it still held."""
    return fetch(cursor, "resume_jobs", {"kind": kind, "name": name}) == [(True,)]


def list_paused_jobs(cursor: Cursor, ids: Sequence[int]) -> set[int]:
    """Return which of these jobs could be claimed now, were it not for a pause."""
    return {job_id for (job_id,) in fetch(cursor, "list_paused_jobs", {"ids": list(ids)})}
