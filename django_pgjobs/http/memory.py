"""The attempts that this process has given to workers lately: to store their results it need not
read their rows.

The write of an outcome names its claim, so an attempt that is remembered here may be over: then
nothing is written. What may have changed meanwhile, a request to cancel, matters to failures only;
for those the row is read, as for attempts that another process has given.
"""

from __future__ import annotations

import os
import threading

from django_pgjobs.queries.remote import Assigned

# How many attempts are remembered; without arguments that is a kilobyte each.
MOST_KNOWN = 5_000


class Memory:
    """Attempts by job and claim; each is forgotten with its first outcome."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Know of none."""
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int], Assigned] = {}

    def note(self, given: Assigned) -> None:
        """Remember an attempt that a worker is given."""
        row = given.row._replace(args="", kwargs="", detail=None)
        with self._lock:
            if len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[row.id, row.claim] = given._replace(row=row)

    def take(self, job_id: int, claim: int) -> Assigned | None:
        """Return what is known of an attempt, and forget it."""
        with self._lock:
            return self._known.pop((job_id, claim), None)


memory = Memory()
os.register_at_fork(after_in_child=memory.begin_anew)
