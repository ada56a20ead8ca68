"""The duties of an upkeep, in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.upkeep.batches import Batches
from django_pgjobs.worker.upkeep.cancels import Cancels
from django_pgjobs.worker.upkeep.duty import Duty
from django_pgjobs.worker.upkeep.freed_keys import FreedKeys
from django_pgjobs.worker.upkeep.listening import Listening
from django_pgjobs.worker.upkeep.look import Look
from django_pgjobs.worker.upkeep.orders import Orders
from django_pgjobs.worker.upkeep.progress import Progress
from django_pgjobs.worker.upkeep.unheld import Unheld
from django_pgjobs.worker.upkeep.watch import Watch


class Duties:
    """All duties, and by name those that others call."""

    def __init__(
        self,
        state: WorkerState,
        pump: Pump,
        connection: OwnConnection,
        refusals: Refusals,
        errands: Errands,
        on_interrupted: Callable[[Attempt], None],
        on_drained: Callable[[str, float], None],
        orders: Orders,
    ) -> None:
        unheld = Unheld(state, pump.outlook, connection, refusals)
        self.look = Look(
            state,
            pump,
            connection,
            refusals,
            is_settled=lambda: unheld.is_settled,
            is_told=lambda: self.watch.rests or (self._hears() and listening.is_said),
            rests=lambda: self.watch.rests,
            on_drained=on_drained,
        )
        listening = Listening(state, pump.outlook, connection, self.look, hears=self._hears)
        before: list[Duty] = [unheld, listening]
        self.cancels = Cancels(state, connection, refusals, on_interrupted)
        self.batches = Batches(state, pump, self.look)
        after: list[Duty] = [self.cancels, orders, Progress(state, connection), FreedKeys(errands)]
        # The look is last, so that it sees what the others have changed.
        after += [self.batches, self.look]
        self.watch = Watch(
            state,
            pump.outlook,
            connection,
            self.look,
            others=[*before, *after],
            orders=orders,
            on_hearing=self.cancels.note_request,
        )
        self._in_order = [*before, self.watch, *after]

    def _hears(self) -> bool:
        return self.watch.hears_of_jobs

    def __iter__(self) -> Iterator[Duty]:
        return iter(self._in_order)
