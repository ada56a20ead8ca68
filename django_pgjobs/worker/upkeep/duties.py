"""The duties of an upkeep, in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django_pgjobs.declaring.registry import list_task_paths
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.watch import first_slot
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
from django_pgjobs.worker.upkeep.watch import Watch


class Duties:
    """All of them, and by name those that are told of something."""

    def __init__(
        self,
        state: WorkerState,
        pump: Pump,
        connection: OwnConnection,
        refusals: Refusals,
        errands: Errands,
        on_interrupted: Callable[[Attempt], None],
        on_drained: Callable[[str], None],
        on_orders: Callable[[], None],
    ) -> None:
        unheld = Unheld(state, pump, connection)
        self.look = Look(
            state,
            pump,
            connection,
            refusals,
            is_settled=lambda: unheld.is_settled,
            on_drained=on_drained,
        )
        self.cancels = Cancels(state, connection, on_interrupted)
        listening = Listening(state, pump, connection, self.look)
        before: list[Duty] = [unheld, listening]
        # The look comes last, so that it sees what the others have changed.
        after = [self.cancels, Progress(state, connection), FreedKeys(errands), self.look]
        options, task_paths = state.options, list_task_paths()
        self.watch = Watch(
            state,
            pump,
            connection,
            self.look,
            others=[*before, *after],
            is_told=lambda: listening.is_said,
            first_slot=lambda: first_slot(connection.schema, *options.serving, task_paths),
            on_orders=on_orders,
        )
        self._in_order = [*before, self.watch, *after]

    def __iter__(self) -> Iterator[Duty]:
        return iter(self._in_order)
