"""When a walk past the jobs with keys need not be made, because it would find nothing.

An idle worker beside a thousand full keys would walk past all of them with each poll. After a
walk that found nothing the keys are *settled* until somebody notifies, a job with a key ends
here, or the server has counted a write (count_changes.sql): that is the net under a notification
that got lost and under changes that nobody announces. A row that was locked and not written while
it was walked past leaves no trace, so once every SETTLED_SECONDS there is a walk whatever happened.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from django_pgjobs.queries.claims import Group

SETTLED_SECONDS = 30.0


class SettledKeys:
    """What one worker knows of jobs with keys that cannot start."""

    def __init__(self) -> None:
        # The groups of the last walk, if it found nothing.
        self._groups: frozenset[Group] | None = None
        # How many writes were counted before it.
        self._changes: int | None = None
        self._until = 0.0

    def __bool__(self) -> bool:
        return self._changes is not None and time.monotonic() < self._until

    def end(self) -> None:
        """Note that something may have changed."""
        self._groups = self._changes = None

    def note_changes(self, changes: int | None) -> bool:
        """Note how many writes were counted before a look; return whether there are new ones."""
        if not self:
            self.end()
        has_new = self._changes is not None and changes != self._changes
        if has_new:
            self.end()
        return has_new

    def note_vain_walk(self, groups: Iterable[Group]) -> None:
        """Note a walk past all lanes of these groups that found nothing to start."""
        self._groups = frozenset(groups)

    def note_groups(self, groups: Iterable[Group]) -> None:
        """Note which groups have jobs; one that was not walked past unsettles them all."""
        if self._groups is not None and not self._groups.issuperset(groups):
            self.end()

    def begin(self, changes: int) -> None:
        """Settle the keys if this look, before which so many writes counted, walked in vain."""
        if self._changes is None and self._groups is not None:
            self._changes = changes
            self._until = time.monotonic() + SETTLED_SECONDS
