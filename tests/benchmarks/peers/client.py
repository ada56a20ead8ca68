"""The commands every enqueuing client answers, each printing one JSON line.

A client script runs in the environment of the system it measures, subclasses `Client` and
calls `main`. The loops and clocks are here, so every system is timed by the same code.
The database comes from libpq's own variables (PGHOST, PGDATABASE, ...).
"""

from __future__ import annotations

import argparse
import json
import random
import time

LATENCY_WARM_UP = 5  # the first opens a connection


class Client:
    """What a system must be able to do; tasks are named noop, insert and record."""

    def setup(self) -> None:
        """Create the tables in an empty database."""
        raise NotImplementedError

    def enqueue(self, task: str, number: int) -> None:
        """Enqueue one job in a transaction of its own; return after the commit."""
        raise NotImplementedError

    def enqueue_bulk(self, task: str, count: int) -> None:
        """Enqueue *count* jobs in one transaction, the fastest way the system offers."""
        raise NotImplementedError

    def enqueue_each(self, task: str, count: int) -> None:
        """Enqueue *count* jobs one after the other, each in a transaction of its own."""
        for number in range(count):
            self.enqueue(task, number)


def run_single(client: Client, task: str, count: int, warm_up: int) -> dict[str, float]:
    client.enqueue_each(task, warm_up)
    started_at = time.time()
    clock = time.perf_counter()
    client.enqueue_each(task, count)
    return {"seconds": time.perf_counter() - clock, "started_at": started_at}


def run_bulk(client: Client, task: str, count: int, warm_up: int) -> dict[str, float]:
    if warm_up:
        client.enqueue_bulk(task, warm_up)
    started_at = time.time()
    clock = time.perf_counter()
    client.enqueue_bulk(task, count)
    return {"seconds": time.perf_counter() - clock, "started_at": started_at}


def run_latency(client: Client, count: int) -> dict[str, list[float]]:
    """Enqueue *count* jobs, the queue idle for 0.3 to 0.5 s before each.

    Returns the times just before the call and just after the commit returned.
    """
    for number in range(LATENCY_WARM_UP):
        client.enqueue("noop", number)
    called: list[float] = []
    committed: list[float] = []
    for number in range(count):
        time.sleep(random.uniform(0.3, 0.5))
        called.append(time.time())
        client.enqueue("record", number)
        committed.append(time.time())
    return {"called": called, "committed": committed}


def main(client: Client) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["setup", "single", "bulk", "latency"])
    parser.add_argument("--task", default="noop")
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--warm-up", type=int, default=0)
    options = parser.parse_args()
    answer: object = {}
    if options.command == "setup":
        client.setup()
    elif options.command == "single":
        answer = run_single(client, options.task, options.count, options.warm_up)
    elif options.command == "bulk":
        answer = run_bulk(client, options.task, options.count, options.warm_up)
    else:
        answer = run_latency(client, options.count)
    print(json.dumps(answer), flush=True)
