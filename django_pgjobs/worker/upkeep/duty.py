"""What the upkeep has to do now and then."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

from django_pgjobs.worker.turns.turn import Turn


class Duty:
    """Statements that are due from time to time."""

    # Does it need a transaction of its own, before what is due together with it?
    travels_alone = False

    @property
    def lock(self) -> AbstractContextManager[bool]:
        """The lock held from planning to the answer, if it travels alone.

        It yields whether it was acquired; if not, the duty stays due.
        """
        return contextlib.nullcontext(True)

    def due_at(self, now: float) -> float:
        """Return when it is due, as far as is known now; infinite if nothing is to be done."""
        raise NotImplementedError

    def plan(self, turn: Turn) -> None:
        """Add what is due to the turn."""
        raise NotImplementedError

    def begin_anew(self) -> None:
        """Note that the connection is new, and that what others sent meanwhile is gone."""
