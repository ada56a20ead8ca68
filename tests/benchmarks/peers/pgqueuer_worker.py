"""The PgQueuer worker, as its guide to programmatic runs shows, on uvloop as `pgq run` is.

(`pgq run` itself fails with the newest version of its command-line library.) One direct
asyncpg connection for the queue manager, as its performance guide advises, and a pool of at
most ten, the default, for the INSERTs of the jobs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pgqueuer
import uvloop
from latency_file import write_first_line
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

INSERT = "INSERT INTO bench_entry (number) VALUES ($1)"


@asynccontextmanager
async def main() -> AsyncIterator[PgQueuer]:
    connection = await asyncpg.connect()
    pool = await asyncpg.create_pool(min_size=1, max_size=10)
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        pass

    @queuer.entrypoint("insert")
    async def insert(job: Job) -> None:
        await pool.execute(INSERT, int(job.payload or b"0"))

    @queuer.entrypoint("record")
    async def record(job: Job) -> None:
        now = time.time()
        write_first_line(int(job.payload or b"0"), now)

    try:
        yield queuer
    finally:
        await pool.close()
        await connection.close()


if __name__ == "__main__":
    uvloop.run(pgqueuer.run(main, batch_size=int(sys.argv[1])))
