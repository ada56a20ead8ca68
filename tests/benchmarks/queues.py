"""The row about many queues: a drain of one queue, of 2,000, and the same of jobs with keys."""

from __future__ import annotations

from tests.benchmarks.measures import Measured, measure_drain
from tests.benchmarks.system import System

# Figure, and the task with how many queues or priorities its jobs are spread over.
KINDS = (
    ("one", "noop"),
    ("many", "noop@2000"),
    ("keyed_one", "limited"),
    ("keyed_queues", "limited@200"),
    ("keyed_priorities", "limited@201p"),
)


def measure_queues(system: System) -> Measured:
    measured = {
        key: measure_drain(system, task, 1, warm_up=task.partition("@")[0]) for key, task in KINDS
    }
    rates = {key: each.figures["rate"] for key, each in measured.items()}
    return Measured(
        {
            "ratio": rates["many"] / rates["one"],
            "queues": rates["keyed_queues"] / rates["keyed_one"],
            "priorities": rates["keyed_priorities"] / rates["keyed_one"],
            **rates,
        },
        cut=any(each.cut for each in measured.values()),
    )
