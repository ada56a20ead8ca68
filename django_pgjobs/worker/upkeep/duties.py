"""The duties of an upkeep, in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.upkeep.cancels import Cancels
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.freed_keys import FreedKeys
from django_pgjobs.worker.upkeep.listening import Listening
from django_pgjobs.worker.upkeep.look import Look
from django_pgjobs.worker.upkeep.progress import Progress
from django_pgjobs.worker.upkeep.unheld import Unheld


class Duties:
    """All of them, and by name those that are told of something."""

    def __init__(
        self,
        state: WorkerState,
        pump: Pump,
        connection: OwnConnection,
        refusals: Refusals,
        errands: Errands,
        *,
        on_interrupted: Callable[[Attempt], None],
        on_drained: Callable[[str], None],
    ) -> None:
        unheld = Unheld(state, pump, connection)
        self.look = Look(
            state,
            pump,
            connection,
            refusals,
            is_settled=lambda: unheld.is_settled,
            is_told=lambda: listening.is_said,
            on_drained=on_drained,
        )
        listening = Listening(state, pump, connection, self.look)
        self.cancels = Cancels(state, connection, on_interrupted)
        self._in_order: list[Duty] = [
            unheld,
            listening,
            self.cancels,
            Progress(state, connection),
            FreedKeys(errands),
            # Last, so that it sees what the others have changed.
            self.look,
        ]

    def __iter__(self) -> Iterator[Duty]:
        return iter(self._in_order)
