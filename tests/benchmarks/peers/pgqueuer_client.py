"""Enqueue with PgQueuer's asynchronous API on asyncpg; bulk passes lists."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import asyncpg
import client
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

ENTRY_TABLE = "CREATE TABLE bench_entry (id bigserial PRIMARY KEY, number integer NOT NULL)"


class PgQueuerClient(client.Client):
    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.connection = self.loop.run_until_complete(asyncpg.connect())
        self.queries = Queries(AsyncpgDriver(self.connection))

    def setup(self) -> None:
        for command in ("install", "autovac"):
            subprocess.run([sys.executable, "-m", "pgqueuer", command], check=True)
        self.loop.run_until_complete(self.connection.execute(ENTRY_TABLE))

    def enqueue(self, task: str, number: int) -> None:
        self.loop.run_until_complete(self.queries.enqueue(task, b"%d" % number))

    def enqueue_each(self, task: str, count: int) -> None:
        async def loop() -> None:
            for number in range(count):
                await self.queries.enqueue(task, b"%d" % number)

        self.loop.run_until_complete(loop())

    def enqueue_bulk(self, task: str, count: int) -> None:
        payloads = [b"%d" % number for number in range(count)]
        self.loop.run_until_complete(self.queries.enqueue([task] * count, payloads, [0] * count))


if __name__ == "__main__":
    client.main(PgQueuerClient())
