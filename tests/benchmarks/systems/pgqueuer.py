"""PgQueuer, the fastest Python queue on PostgreSQL we know of; it is not for Django."""

from __future__ import annotations

from tests.benchmarks.system import PEERS, System


class PgQueuer(System):
    """PgQueuer with asyncpg and batches of 500, `pgq autovac` applied, tables durable.

    Tasks are coroutines. Its performance guide advises one direct connection for the
    queue manager and larger batches for short jobs (default 10).
    """

    name = "pgqueuer"
    title = "PgQueuer (asyncpg)"
    requirements = ("pgqueuer[asyncpg]",)
    shown_packages = ("pgqueuer", "asyncpg", "uvloop")
    client = "pgqueuer_client.py"
    tables = ("pgqueuer", "pgqueuer_log", "pgqueuer_statistics", "bench_entry")
    mark = "SELECT max(id) FROM pgqueuer_log"
    done = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful' AND id > %s"
    enqueuing = "Queries.enqueue with lists"
    working = "pgqueuer.run(batch_size=500) on uvloop"

    def worker_command(self, *, logs: bool) -> list[str]:
        return [str(PEERS / "pgqueuer_worker.py"), "500"]
