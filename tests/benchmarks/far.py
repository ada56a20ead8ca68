"""The rows about workers that are far from the server."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.distance import distant
from tests.benchmarks.measures import Measured, drain
from tests.benchmarks.system import System

# The delay each way.
MILLISECONDS = (0, 2, 10)


def measure_async_starts(system: System) -> Measured:
    """Drain async jobs with a worker that has one thread."""
    return _measure(system, "noop_async", ("-c", "1"))


def measure_distant_drain(system: System) -> Measured:
    return _measure(system, "noop", ())


def _measure(system: System, task: str, arguments: Sequence[str]) -> Measured:
    figures, is_cut = {}, False
    for delay in MILLISECONDS:
        system.reset()
        with (
            distant(system.bench.server.parameters, delay / 1000) as variables,
            system.workers(task=task, arguments=arguments, **variables) as group,
        ):
            rate, progress = drain(system, group, task, system.bench.jobs, system.bench.limit)
        figures[f"at_{delay}"] = rate
        is_cut = is_cut or not progress.complete
    return Measured(figures, cut=is_cut)
