"""Builds the roles of a worker that know of several others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from django_pgjobs.metrics.of_worker import Cells
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.signals import has_receivers, task_started
from django_pgjobs.worker.attempt import Attempt
from django_pgjobs.worker.claiming.claimer import Claimer, declaring_paths, detailed_paths
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


# What a role is called in words, if not by its name.
IN_WORDS = {"lease": "lease keeper"}


def marks_of(
    roles: Iterable[Role], connections: Mapping[str, OwnConnection]
) -> dict[str, Callable[[], float]]:
    """Return what tells when each role last moved, or its connection, by what it is called."""
    return {
        f"the {IN_WORDS.get(role.name, role.name)}": partial(
            _last_move, [each for each in (role, connections.get(role.name)) if each is not None]
        )
        for role in roles
    }


def _last_move(parts: Sequence[Role | OwnConnection]) -> float:
    return max(part.moved_at for part in parts)


def build_health(
    state: WorkerState,
    connections: Mapping[str, OwnConnection],
    slots: tuple[Capacity, Capacity],
    roles: tuple[Pump, LeaseKeeper, Vitals],
    *,
    totals: Callable[[], Cells],
    on_crash: Callable[[str], None],
) -> list[Role]:
    """Return the roles that say how the worker does, none if nobody asks.

    Raise HealthUnusable if the port or the file cannot be had.
    """
    options = state.options
    if options.health_port is None and not options.health_file:
        return []
    health = Health(state, connections, slots, *roles, totals=totals, on_crash=on_crash)
    if options.health_port is None:
        return [health]
    return [health, HealthServer(options.health_host, options.health_port, health, on_crash)]
