"""The rows about workflows: drains of trees against plain jobs, and what a batch costs."""

from __future__ import annotations

import statistics
import threading
import time
from itertools import pairwise
from typing import Any

import psycopg

from tests.benchmarks.measures import Measured, cut_note, drain, loaded_queue, per_second
from tests.benchmarks.processes import run_json
from tests.benchmarks.system import PEERS, System

LEVELS = 3
SETTLEMENTS = 15
MILLION = 1_000_000
PARTS = 4
SAMPLE_GAP = 0.02
# Workers that are parked wait for the watch, by design.
ACTIVE = """
SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock')
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND state = 'active'
    AND pid <> pg_backend_pid() AND wait_event IS DISTINCT FROM 'advisory'
"""
CLIENT_SECONDS = 600.0


class LockSampler:
    """Looks every 20 ms which active sessions wait for a lock, as long as its block lasts."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._active = 0
        self._waiting = 0

    @property
    def share(self) -> float:
        """Return which part of the active sessions waited."""
        return self._waiting / max(self._active, 1)

    def __enter__(self) -> LockSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with self._system.bench.server.connect(self._system.database) as connection:
            while not self._ended.wait(SAMPLE_GAP):
                [(active, waiting)] = connection.execute(ACTIVE).fetchall()
                self._active += active
                self._waiting += waiting


def measure_tree_drain(system: System, processes: int) -> Measured:
    """Drain plain jobs, those of one batch, and a tree: each level is made of results above."""
    count = system.bench.jobs // LEVELS * LEVELS
    rates: dict[str, float] = {}
    locks: dict[str, float] = {}
    cut = False
    for key, task in (("plain", "step"), ("batch", "batch"), ("tree", "tree")):
        system.reset()
        with system.workers(processes, task="step") as group, LockSampler(system) as sampler:
            rates[key], progress = drain(system, group, task, count, system.bench.limit)
        locks[f"{key}_locks"] = sampler.share
        cut = cut or not progress.complete
    ratios = {"ratio": rates["tree"] / rates["plain"], "one": rates["batch"] / rates["plain"]}
    return Measured(ratios | rates | locks, cut=cut)


def measure_held_batch(system: System) -> Measured:
    """Drain one batch while another session's snapshot keeps every version of its row."""
    part = system.bench.jobs
    limit = system.bench.limit * 2
    system.reset()
    with (
        system.workers(task="step") as group,
        system.bench.server.connect(system.database) as holder,
    ):
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM pg_class")
        with loaded_queue(system, group, "batch", PARTS * part) as go:
            moments = [go()]
            for number in range(1, PARTS + 1):
                left = max(limit - (time.time() - moments[0]), 1.0)
                progress = system.wait_until_done(group, number * part, left)
                moments.append(progress.at)
                if not progress.complete:
                    return Measured({}, cut_note(system, progress.done, PARTS * part), cut=True)
        holder.execute("ROLLBACK")
    rates = [per_second(system, part, end - begin) for begin, end in pairwise(moments)]
    return Measured({"ratio": rates[-1] / rates[0], "first": rates[0], "last": rates[-1]})


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
