"""The rows about workflows: drains of trees against plain jobs, and what a batch costs."""

from __future__ import annotations

import statistics
import time
from typing import Any

import psycopg

from tests.benchmarks.measures import Measured, drain, per_second
from tests.benchmarks.processes import run_json
from tests.benchmarks.system import PEERS, System

LEVELS = 3
SETTLEMENTS = 15
MILLION = 1_000_000
CLIENT_SECONDS = 600.0


def measure_tree_drain(system: System, processes: int) -> Measured:
    """Drain plain jobs, those of one batch, and a tree: each level is made of results above."""
    count = system.bench.jobs // LEVELS * LEVELS
    rates: dict[str, float] = {}
    cut = False
    for key, task in (("plain", "step"), ("batch", "batch"), ("tree", "tree")):
        system.reset()
        with system.workers(processes, task="step") as group:
            rates[key], progress = drain(system, group, task, count, system.bench.limit)
        cut = cut or not progress.complete
    return Measured(
        {"ratio": rates["tree"] / rates["plain"], "one": rates["batch"] / rates["plain"], **rates},
        cut=cut,
    )


def measure_batches(system: System) -> Measured:
    """Add jobs to a batch and without one; count the last job of a million; run chains of ten."""
    count = system.bench.jobs
    seconds = {}
    for task in ("step", "batch"):
        system.reset()
        seconds[task] = system.enqueue_bulk(task, count, warm_up=count // 10)["seconds"]
    system.reset()
    with system.bench.server.connect(system.database) as connection:
        # The first ones plan: a worker's session has done that.
        ends = [_end_of_a_million(system, connection) for _ in range(2 * SETTLEMENTS)]
    system.reset()
    with system.workers(1, task="step"):
        line = [str(system.environment.python), str(PEERS / "ours_chains.py")]
        chains = run_json(line, system.variables(), system.bench.folder, CLIENT_SECONDS)
    return Measured(
        {
            "added": seconds["step"] / seconds["batch"],
            "adding": per_second(system, count, seconds["batch"]),
            "end": statistics.median(ends[SETTLEMENTS:]),
            "first_end": ends[0],
            "chain": statistics.median(chains["seconds"]) * 1000,
            "first_chain": chains["seconds"][0] * 1000,
        }
    )


def _end_of_a_million(system: System, connection: psycopg.Connection[Any]) -> float:
    """Return the milliseconds in which the last job of a batch of a million is counted.

    No job is read for that, so none is there.
    """
    batch_id = system.query(
        "INSERT INTO pgjobs_batch (id, root_id, flow_id, sealed_at, jobs, successful)"
        " SELECT id, id, id, now(), %s, %s FROM nextval('pgjobs_batch_id_seq') AS id"
        " RETURNING id",
        MILLION,
        MILLION - 1,
    )
    connection.execute(
        "INSERT INTO pgjobs_batch_change (batch_id, successful) VALUES (%s, 1)", [batch_id]
    )
    started_at = time.perf_counter()
    connection.execute("SELECT * FROM pgjobs_settle_v1(ARRAY[%s::bigint], 10)", [batch_id])
    return (time.perf_counter() - started_at) * 1000
