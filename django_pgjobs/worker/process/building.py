"""Builds the roles of a worker that know of several others."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from django_pgjobs.declaring.lacking import declaring_paths
from django_pgjobs.declaring.remote import remote_paths
from django_pgjobs.metrics.cells import Cells, attempts_of, fold
from django_pgjobs.queries.connection import ANSWER_SECONDS, LOCK_SECONDS, OwnConnection
from django_pgjobs.signals import has_receivers, task_started
from django_pgjobs.tracing.headers import is_tracing
from django_pgjobs.tracing.tracers import observe
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.claimer import Claimer, detailed_paths
from django_pgjobs.worker.claiming.completer import Completer
from django_pgjobs.worker.claiming.demand import Demand
from django_pgjobs.worker.claiming.errands import Errands
from django_pgjobs.worker.claiming.places import Places
from django_pgjobs.worker.claiming.pump import Pump
from django_pgjobs.worker.process.health import Health
from django_pgjobs.worker.process.health_server import HealthServer
from django_pgjobs.worker.process.leases import LeaseKeeper
from django_pgjobs.worker.process.vitals import Vitals
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.running.capacity import Capacity
from django_pgjobs.worker.state import CONNECTED_ROLES, Options, WorkerState
from django_pgjobs.worker.turns.refusals import Refusals
from django_pgjobs.worker.upkeep.duties import Duties
from django_pgjobs.worker.upkeep.orders import Orders
from django_pgjobs.worker.upkeep.upkeep import Upkeep

# However short the lease, its renewal may take that long to be answered.
LEAST_ANSWER_SECONDS = 5.0
ROW_LOCK_SECONDS = 0.2
# How large a part of the lease each statement between two renewals may wait for a lock, so that
# waiting for rows of other workers does not cost a worker its own lease.
LOCK_SHARE = 0.05


def build_state(options: Options, host: str) -> WorkerState:
    """Return what the roles share. Claims leave out remote tasks, whatever their queue."""
    name = options.name or f"{host}:{os.getpid()}"
    return WorkerState(options, name, paths_of_others=frozenset(remote_paths()))


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
    on_drained: Callable[[str, float], None],
    on_orders: Callable[[], None],
    on_crash: Callable[[str], None],
) -> tuple[Pump, Upkeep]:
    """Return the pump and the upkeep, with what only they share."""
    errands, refusals, places = Errands(), Refusals(), Places(state.options)
    claimer = _build_claimer(state, connections["pump"], refusals)
    pump = Pump(
        state,
        connections["pump"],
        demand,
        places,
        claimer,
        refusals,
        completer,
        errands,
        dispatch=dispatch,
        take_back=take_back,
        on_interrupted=on_interrupted,
        on_limit=on_limit,
        on_crash=on_crash,
    )
    own = connections["upkeep"]
    orders = Orders(state, on_orders)
    duties = Duties(state, pump, own, refusals, errands, on_interrupted, on_drained, orders)
    return pump, Upkeep(state, own, pump, errands, duties, on_orders=on_orders, on_crash=on_crash)


def _build_claimer(state: WorkerState, connection: OwnConnection, refusals: Refusals) -> Claimer:
    return Claimer(
        state,
        connection,
        refusals,
        detailed_paths=detailed_paths(),
        declaring_paths=declaring_paths(),
        wants_details=lambda: has_receivers(task_started) or is_tracing(),
    )


def build_connections(options: Options) -> dict[str, OwnConnection]:
    """Return the connections of a worker by the roles that use them."""
    # So that one locked row does not delay the others for long.
    connections = {
        role: OwnConnection(options.database, role, lock_seconds=ROW_LOCK_SECONDS)
        for role in (*CONNECTED_ROLES, "pruner", "recorder")
    }
    # So that a renewal that gets no answer can be sent again on a new connection.
    connections["lease"] = OwnConnection(
        options.database,
        "lease",
        answer_seconds=min(ANSWER_SECONDS, max(LEAST_ANSWER_SECONDS, options.lease / 3)),
        lock_seconds=min(LOCK_SECONDS, options.lease * LOCK_SHARE),
    )
    return connections


def build_health(
    state: WorkerState,
    connections: Mapping[str, OwnConnection],
    pump: Pump,
    leases: LeaseKeeper,
    vitals: Vitals,
    slots: Capacity,
    async_slots: Capacity,
    totals: Callable[[], Cells],
    on_crash: Callable[[str], None],
) -> list[Role]:
    """Return the roles that report the worker's health, none if no flag asks for them.

    Raise HealthUnusable if the port or the file cannot be had.
    """
    observe(lambda: attempts_of(fold(totals())))
    options = state.options
    if options.health_port is None and not options.health_file:
        return []
    health = Health(
        state,
        connections,
        {"threads": slots, "event loop": async_slots},
        outlook=pump.outlook,
        leases=leases,
        vitals=vitals,
        totals=totals,
        on_crash=on_crash,
    )
    if options.health_port is None:
        return [health]
    return [health, HealthServer(options.health_host, options.health_port, health, on_crash)]
