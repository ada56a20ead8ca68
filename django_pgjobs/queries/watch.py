"""The watch for new jobs: an advisory lock, which one session of a group of workers has.

The server frees the lock of a session that ends, and gives it to the next one that waits.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django_pgjobs.queries.cursor import Cursor, execute
from django_pgjobs.queries.notifications import WATCH_CHANNEL


def key_of(*group: Any) -> int:
    """Return the key of the watch of those who have all this in common."""
    text = json.dumps(group, default=list, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"pgjobs watch").digest()
    return int.from_bytes(digest, signed=True)


def send_take(cursor: Cursor, *, watch: int, seconds: float, silent_seconds: float) -> None:
    """Take the watch, and wait for it at most so many seconds; the row says whether it was taken.

    The server ends the session if it has the watch and sends nothing for *silent_seconds*.
    """
    params = {
        "watch": watch,
        "milliseconds": round(1000 * seconds),
        "silent_seconds": round(silent_seconds),
    }
    execute(cursor, "take_watch", params)


def send_leave(cursor: Cursor) -> None:
    """Release the watch, and tell workers that hold jobs and want it."""
    execute(cursor, "leave_watch", {"channel": WATCH_CHANNEL})
