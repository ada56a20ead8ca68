"""The rows of the table: what is measured, in which unit, and what ours must reach."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tests.benchmarks import far, herd, keys, limits, measures, queues, soak, starts, trees
from tests.benchmarks.measures import Measured
from tests.benchmarks.system import System


@dataclass(frozen=True)
class Target:
    """What ours must reach: *value*, times the bare floor if *of_bare*."""

    value: float
    of_bare: bool = False

    def limit(self, bare: float | None) -> float | None:
        if not self.of_bare:
            return self.value
        return None if bare is None else self.value * bare


@dataclass(frozen=True)
class Figure:
    key: str
    title: str
    unit: str
    more_is_better: bool = True
    target: Target | None = None


@dataclass(frozen=True)
class Row:
    key: str
    figures: tuple[Figure, ...]
    measure: Callable[[System], Measured]
    only: tuple[str, ...] = ()  # systems; empty: all
    without: tuple[str, ...] = ()
    repeats: int | None = None  # at most; for counts that do not vary
    method: str = ""

    def covers(self, system: str) -> bool:
        return (not self.only or system in self.only) and system not in self.without


NEAR_BARE = Target(1.25, of_bare=True)
NEARLY = Target(0.95)

ROWS: tuple[Row, ...] = (
    Row(
        "enqueue",
        (Figure("rate", "enqueue one by one", "jobs/s", target=Target(0.8, of_bare=True)),),
        measures.measure_enqueue,
        method="one client, one connection, a quarter of --jobs, each in its own transaction",
    ),
    Row(
        "bulk",
        (Figure("rate", "bulk enqueue", "jobs/s", target=Target(80_000)),),
        measures.measure_bulk,
        method="--jobs jobs in one transaction, by the call each system has for it",
    ),
    Row(
        "drain1",
        (Figure("rate", "drain no-op jobs, 1 process", "jobs/s", target=Target(20_000)),),
        lambda system: measures.measure_drain(system, "noop", 1),
        method="--jobs jobs, one warm worker process",
    ),
    Row(
        "drain2",
        (Figure("rate", "drain no-op jobs, 2 processes", "jobs/s", target=Target(30_000)),),
        lambda system: measures.measure_drain(system, "noop", 2),
        method="--jobs jobs, two warm worker processes started separately",
    ),
    Row(
        "insert",
        (Figure("rate", "drain, one ORM INSERT in each job", "jobs/s", target=Target(3_300)),),
        lambda system: measures.measure_drain(system, "insert", 1),
        method="--jobs jobs whose body inserts one row (ORM; without Django: the driver)",
    ),
    Row(
        "insert_kept",
        (Figure("rate", "the same, resets_session=False", "jobs/s", target=Target(3_300)),),
        lambda system: measures.measure_drain(system, "insert_kept", 1),
        only=("ours",),  # the others never reset a session
        method="the same, by a task that promises to leave nothing in its session",
    ),
    Row(
        "stream",
        (Figure("rate", "enqueue one by one while 1 process works", "jobs/s"),),
        measures.measure_stream,
        method="--jobs jobs, each its own transaction; until the last one has finished",
    ),
    Row(
        "latency",
        (
            Figure("p50", "idle latency p50, from the commit", "ms", False, NEAR_BARE),
            Figure("p99", "idle latency p99, from the commit", "ms", False, NEAR_BARE),
            Figure("call_p50", "p50 from the call, commit included", "ms", False, NEAR_BARE),
            Figure("call_p99", "p99 from the call, commit included", "ms", False, NEAR_BARE),
        ),
        measures.measure_latency,
        method="from the return of the commit (or from the call) to the task's first line, "
        "0.3 to 0.5 s between jobs; percentiles of each repeat",
    ),
    Row(
        "held",
        (
            Figure("ratio", "rate under a held snapshot, last / first", "x", True, Target(0.85)),
            Figure("first", "the first --jobs jobs", "jobs/s"),
            Figure("last", "those after --held-jobs jobs", "jobs/s"),
        ),
        measures.measure_held,
        method="1 process drains --jobs jobs again and again while a REPEATABLE READ "
        "transaction is open in the same database; twice the time limit",
    ),
    Row(
        "memory",
        (
            Figure("rss", "idle worker, RSS", "MiB", False, target=Target(60)),
            Figure("pss", "idle worker, PSS", "MiB", False),
        ),
        measures.measure_memory,
        method="all processes of one worker, 5 s idle after the warm-up jobs",
    ),
    Row(
        "statements",
        (
            Figure("enqueue", "statements per enqueue", "", False, target=Target(1)),
            Figure("job", "statements per drained job", "", False, target=Target(0.99)),
        ),
        measures.measure_statements,
        repeats=1,
        method="lines of the server's log under log_statement = all (or calls in "
        "pg_stat_statements), BEGIN and COMMIT included",
    ),
    Row(
        "idle",
        (Figure("count", "statements of an idle worker in 30 s", "", False),),
        measures.measure_idle,
        without=("bare",),  # it has nothing but its claim to repeat
        repeats=1,
        method="counted as above",
    ),
    Row(
        "logs",
        (
            Figure("ratio", "drain rate with default log lines / without", "x"),
            Figure("off", "drain without log lines", "jobs/s"),
            Figure("on", "drain with log lines, to a file", "jobs/s"),
        ),
        measures.measure_logs,
        only=("ours",),
        method="1 process, --jobs jobs",
    ),
    Row(
        "limit",
        (
            Figure("share", "one rate limit in 8 processes, granted / allowed", "x", True, NEARLY),
            Figure("window", "the most in any window of 100 a second", "", False, Target(100)),
            Figure("rate", "tokens taken by 8 processes, no limit in the way", "tokens/s"),
        ),
        limits.measure_limit,
        only=("ours",),
        method="8 workers with one slot take tokens one by one inside a job, for 10 s of a "
        "limit of 100 a second, then for 5 s of one that is never reached",
    ),
    Row(
        "starts",
        (
            *(
                Figure(
                    f"share_{rate}_{workers}",
                    f"started of a limit of {rate} a second, {workers} worker{'s' * (workers > 1)}",
                    "x",
                    target=NEARLY,
                )
                for workers in starts.WORKERS
                for rate in starts.RATES
            ),
            Figure("excess", "the most above the limit in any window", "", False, Target(0)),
        ),
        starts.measure_starts,
        only=("ours",),
        repeats=1,
        method="no-op jobs with rate_limit= that wait for one limit without a burst, 10 s each",
    ),
    *(
        Row(
            f"keys{processes}",
            (
                Figure(
                    "ratio",
                    f"drain with keys / without, {processes} process{'es' * (processes > 1)}",
                    "x",
                    target=Target(0.6 if processes == 1 else 0.5),
                ),
                Figure("plain", "without keys, same run", "jobs/s"),
                Figure("limited", "1,000 keys, 5 jobs at a time each", "jobs/s"),
                Figure("ordered", "1,000 keys, one at a time and in order", "jobs/s"),
            ),
            functools.partial(keys.measure_keyed_drain, processes=processes),
            only=("ours",),
            method=f"--jobs jobs of each kind, {processes} worker processes warmed up with such",
        )
        for processes in (1, 4)
    ),
    *(
        Row(
            f"trees{processes}",
            (
                Figure(
                    "ratio",
                    f"drain of a tree of 3 levels / plain, {processes} "
                    f"process{'es' * (processes > 1)}",
                    "x",
                    target=Target(0.85),
                ),
                Figure("one", "jobs of one batch / plain", "x"),
                Figure("plain", "without a batch, same run", "jobs/s"),
                Figure("tree", "a tree", "jobs/s"),
                Figure("batch", "one batch", "jobs/s"),
                Figure(
                    "batch_locks", "active sessions that wait for a lock, one batch", "x", False
                ),
                Figure("tree_locks", "the same, a tree", "x", False, target=Target(0.05)),
                Figure("plain_locks", "the same, without a batch", "x", False),
            ),
            functools.partial(trees.measure_tree_drain, processes=processes),
            only=("ours",),
            method=f"--jobs jobs of each kind, {processes} warm worker processes",
        )
        for processes in (1, 4)
    ),
    Row(
        "held_batch",
        (
            Figure(
                "ratio", "rate under a held snapshot, last / first quarter", "x", True, Target(0.8)
            ),
            Figure("first", "the first --jobs jobs of a batch", "jobs/s"),
            Figure("last", "the last of four times as many", "jobs/s"),
        ),
        trees.measure_held_batch,
        only=("ours",),
        method="1 process drains one batch of four times --jobs jobs while a REPEATABLE READ "
        "transaction is open in the same database",
    ),
    Row(
        "batches",
        (
            Figure("added", "adding to a batch / bulk enqueue", "x", target=Target(0.8)),
            Figure("adding", "adding to a batch", "jobs/s"),
            Figure(
                "end", "the last job of a batch of a million is counted", "ms", False, Target(5)
            ),
            Figure("first_end", "the same, the first one of a session", "ms", False),
            Figure("chain", "chain of ten no-op steps, one idle worker", "ms", False, Target(150)),
            Figure("first_chain", "the first one of a worker", "ms", False),
        ),
        trees.measure_batches,
        only=("ours",),
        method="--jobs jobs in one transaction each; medians of 15 and 12 within a measurement",
    ),
    Row(
        "async",
        (
            Figure("at_0", "starts of async no-op jobs, one thread", "jobs/s"),
            Figure("at_2", "2 ms from the server, each way", "jobs/s", target=Target(10_000)),
            Figure("at_10", "10 ms from the server, each way", "jobs/s"),
        ),
        far.measure_async_starts,
        only=("ours",),
        method="--jobs jobs each, one warm worker process with --concurrency 1, the default of 100"
        " async jobs at a time; distances by a proxy that holds back all bytes",
    ),
    Row(
        "distance",
        (
            Figure("at_0", "drain no-op jobs, 1 process, beside the server", "jobs/s"),
            Figure("at_2", "the same, 2 ms from the server, each way", "jobs/s"),
            Figure(
                "at_10",
                "the same, 10 ms from the server, each way",
                "jobs/s",
                target=Target(18_000),
            ),
        ),
        far.measure_distant_drain,
        only=("ours",),
        method="as drain1; distances by a proxy that holds back all bytes",
    ),
    Row(
        "queues",
        (
            Figure("ratio", "drain of 2,000 queues / of one", "x", target=Target(0.85)),
            Figure("queues", "with keys: 200 queues / one", "x", target=Target(0.8)),
            Figure("priorities", "with keys: 201 priorities / one", "x", target=Target(0.8)),
            Figure("one", "one queue", "jobs/s"),
            Figure("many", "2,000 queues", "jobs/s"),
            Figure("keyed_one", "1,000 keys, 5 jobs at a time each, one queue", "jobs/s"),
            Figure("keyed_queues", "the same in 200 queues", "jobs/s"),
            Figure("keyed_priorities", "the same in 201 priorities", "jobs/s"),
        ),
        queues.measure_queues,
        only=("ours",),
        method="--jobs jobs of each kind, 1 process; all jobs of a queue or priority are enqueued"
        " one after the other",
    ),
    Row(
        "walks",
        (
            Figure("commit", "round trip and commit of nothing but the hold", "ms", False),
            Figure("million", "claim of 20 beside a full key of 1,000,000", "ms", False, Target(4)),
            Figure("blocked", "walk past 1,000 full keys, after a change", "ms", False),
            Figure("alone", "claim of 20 without keys, no others there", "ms", False),
            Figure("beside", "claim of 20 without keys, beside 1,020,000 others", "ms", False),
        ),
        keys.measure_walks,
        only=("ours",),
        method="by hand on one connection, commit included, medians of 15; what was claimed is"
        " finished before the next claim",
    ),
    *(
        Row(
            f"herd{workers}",
            (
                Figure("idle", "commits a second while nothing is to do", "", False),
                Figure("commits", "commits per job, one at a time", "", False, Target(10)),
                Figure("server", "CPU per job of the server", "ms", False),
                Figure("workers", "CPU per job of the workers", "ms", False),
                Figure("p50", "latency p50", "ms", False),
                Figure("p99", "latency p99", "ms", False),
                Figure("steady", "commits per job, 100 jobs a second", "", False, Target(5)),
                Figure("burst", "20,000 jobs at once", "jobs/s", target=Target(30_000)),
                Figure("enqueue", "enqueue one by one, 1 client", "jobs/s"),
                Figure("enqueue4", "enqueue one by one, 4 clients", "jobs/s"),
                Figure("polled", "1 client, workers with --no-listen", "jobs/s"),
                Figure("ratio", "1 client, ratio of the two", "x", target=Target(0.8)),
            ),
            functools.partial(herd.measure_herd, workers=workers),
            only=("ours",),
            method=f"{workers} idle workers of two threads; latency with 20 to 60 ms between jobs",
        )
        for workers in (0, 1, 10, 40)
    ),
    Row(
        "soak",
        (
            Figure("rate", "five minutes of jobs", "jobs/s", target=Target(0.98 * soak.RATE)),
            Figure("waiting", "the most that waited at a time", "jobs", False),
            Figure("p50", "latency p50 meanwhile", "ms", False),
            Figure("p99", "latency p99 meanwhile", "ms", False),
            Figure("live", "table of live jobs at the end", "MiB", False),
            Figure("finished", "table of finished jobs at the end", "MiB", False),
            Figure("growth", "largest table, last minute / third minute", "x", False, Target(1.1)),
            Figure("vacuums", "times that autovacuum came, at least", "", target=Target(3)),
        ),
        soak.measure_soak,
        only=("ours",),
        repeats=1,
        method=f"{soak.RATE:,} no-op jobs a second for {soak.SECONDS:.0f} s, 1 worker process, a "
        f"retention of {soak.KEPT_SECONDS} s",
    ),
)
