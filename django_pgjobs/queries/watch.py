"""The watch for new jobs: its slots are advisory locks of the workers' sessions.

The server frees the slot of a session that ends, and gives it to the next one that waits.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django_pgjobs.queries.cursor import Cursor, execute
from django_pgjobs.queries.notifications import WATCH_CHANNEL

# Of all workers that serve the same jobs so many are on watch: one, and one in case it is frozen.
# Each more costs every enqueue about 10 us in the server (measured: docs/design.md).
SLOTS = 2


def first_slot(*group: Any) -> int:
    """Return the key of the first slot of those who have all this in common."""
    text = json.dumps(group, default=list, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"pgjobs watch").digest()
    # Room for the slots behind it.
    return int.from_bytes(digest, signed=True) & ~0xFF


def send_take(
    cursor: Cursor, worker_id: int, *, first_slot: int, wanted: int, seconds: float
) -> None:
    """Take a slot; if all are taken wait for the *wanted* one, at most so many seconds.

    Rows: the slot, None if there was none, and whether people ask something of the worker.
    """
    params = {
        "id": worker_id,
        "first_slot": first_slot,
        "slots": SLOTS,
        "wanted": wanted,
        "milliseconds": round(1000 * seconds),
    }
    execute(cursor, "take_watch", params)


def send_leave(cursor: Cursor) -> None:
    """Let go of the slot, and tell those who hold jobs and would watch."""
    execute(cursor, "leave_watch", {"channel": WATCH_CHANNEL})
