"""Builds the pump and the upkeep of a worker, which know of each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.signals import has_receivers, task_started
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.claimer import Claimer, declaring_paths, detailed_paths
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.demand import Demand
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.claiming.places import Places
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.state import WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.upkeep.duties import Duties
from django_pgjobs.worker.upkeep.upkeep import Upkeep


def build_pump_and_upkeep(
    state: WorkerState,
    connections: Mapping[str, OwnConnection],
    demand: Demand,
    completer: Completer,
    *,
    dispatch: Callable[[list[Attempt]], None],
    take_back: Callable[[float | None], list[Attempt]],
    on_interrupted: Callable[[Attempt], None],
    on_limit: Callable[[str], None],
    on_drained: Callable[[str], None],
    on_orders: Callable[[], None],
    on_crash: Callable[[str], None],
) -> tuple[Pump, Upkeep]:
    """Return the two roles, each with what only they know."""
    errands, refusals, places = Errands(), Refusals(state), Places(state.options)
    claimer = _build_claimer(state, connections["pump"], refusals)
    pump = Pump(
        state,
        connections["pump"],
        demand,
        places,
        claimer,
        completer,
        errands,
        dispatch=dispatch,
        take_back=take_back,
        on_interrupted=on_interrupted,
        on_limit=on_limit,
        on_crash=on_crash,
    )
    own = connections["upkeep"]
    duties = Duties(state, pump, own, refusals, errands, on_interrupted, on_drained, on_orders)
    return pump, Upkeep(state, own, pump, errands, duties, on_orders=on_orders, on_crash=on_crash)


def _build_claimer(state: WorkerState, connection: OwnConnection, refusals: Refusals) -> Claimer:
    return Claimer(
        state,
        connection,
        refusals,
        detailed_paths=detailed_paths(),
        declaring_paths=declaring_paths(),
        wants_details=lambda: has_receivers(task_started),
    )
