"""The rows about concurrency keys: drains of jobs with keys, and claims that meet full lanes."""

from __future__ import annotations

from tests.benchmarks.measures import Measured, measure_drain
from tests.benchmarks.processes import run_json
from tests.benchmarks.system import PEERS, System

CLIENT_SECONDS = 600.0


def measure_keyed_drain(system: System, processes: int) -> Measured:
    """Drain jobs without keys, with keys, and with keys in order.

    The workers were warmed up with jobs of the same kind: each kind has a statement of its own,
    which a worker has planned by then.
    """
    plain, limited, ordered = (
        measure_drain(system, task, processes, warm_up=task)
        for task in ("noop", "limited", "ordered")
    )
    rates = [measured.figures["rate"] for measured in (plain, limited, ordered)]
    return Measured(
        {
            "ratio": rates[1] / rates[0],
            "plain": rates[0],
            "limited": rates[1],
            "ordered": rates[2],
        },
        cut=any(measured.cut for measured in (plain, limited, ordered)),
    )


def measure_walks(system: System) -> Measured:
    """Time claims by hand in the system's own environment."""
    system.reset()
    line = [str(system.environment.python), str(PEERS / "ours_walks.py")]
    figures = run_json(line, system.variables(), system.bench.folder, CLIENT_SECONDS)
    return Measured(figures)
