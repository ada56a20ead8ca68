"""The floor of working: claim a batch, call each function, finish the batch, in raw SQL.

One psycopg connection in autocommit, prepared statements with generic plans, batches of
`BENCH_BATCH` jobs (default 500). No lease, no error handling, no clean-up between jobs.
When the queue is empty it waits for a NOTIFY where latency is measured and else looks
again after 5 ms.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from latency_file import write_first_line

# With them each statement keeps the plan by primary key or ready index, whatever the
# statistics of a table that was empty a moment ago say.
PLANNER_SETTINGS = (
    "plan_cache_mode = force_generic_plan",
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
)
CLAIM = """
    UPDATE pgjobs_job_live AS job
    SET status = 'running', claim = job.claim + 1,
        attempts = job.attempts + 1, started_at = statement_timestamp(),
        last_attempted_at = statement_timestamp()
    WHERE job.id = ANY (ARRAY(
        SELECT ready.id FROM pgjobs_job_live AS ready
        WHERE ready.status = 'ready' AND ready.due_at IS NULL
            AND ready.backend = 'default' AND ready.queue_name = 'default'
        ORDER BY -ready.priority, ready.id
        LIMIT %s FOR UPDATE SKIP LOCKED
    ))
    RETURNING job.id, job.claim, job.task_path, job.args::text
"""
# Both live statuses, not 'running' alone: the index of running jobs does not fit then, which
# the planner would take for a nested loop over all pairs of the batch.
FINISH = """
    UPDATE pgjobs_job AS job
    SET status = 'successful', finished_at = statement_timestamp()
    FROM unnest(%s::bigint[], %s::bigint[]) AS done (id, claim)
    WHERE job.id = done.id AND job.claim = done.claim AND job.status IN ('ready', 'running')
"""


def make_tasks(inserter: psycopg.Connection) -> dict[str, Callable[[int], None]]:
    def noop(number: int) -> None:
        pass

    def insert(number: int) -> None:
        inserter.execute("INSERT INTO bench_entry (number) VALUES (%s)", (number,))

    def record(number: int) -> None:
        now = time.time()
        write_first_line(number, now)

    return {"noop": noop, "insert": insert, "record": record}


def claim(connection: psycopg.Connection, batch: int) -> list[tuple[Any, ...]]:
    """Claim a batch; once more if a row moved to the finished ones between snapshot and lock."""
    while True:
        with suppress(psycopg.errors.SerializationFailure):
            return connection.execute(CLAIM, (batch,), prepare=True).fetchall()


def main() -> None:
    batch = int(os.environ.get("BENCH_BATCH", "500"))
    connection = psycopg.connect(autocommit=True)
    for setting in PLANNER_SETTINGS:
        connection.execute(f"SET {setting}")
    connection.execute("LISTEN bench_bare")
    inserter = psycopg.connect(autocommit=True)
    idle_seconds = 5 if "BENCH_LATENCY_FILE" in os.environ else 0.005
    tasks = make_tasks(inserter)
    while True:
        jobs = claim(connection, batch)
        if not jobs:
            for _ in connection.notifies(timeout=idle_seconds, stop_after=1):
                pass
            continue
        for _, _, task_path, arguments in jobs:
            tasks[task_path.rpartition(".")[2]](*json.loads(arguments))
        ids = [job[0] for job in jobs]
        claims = [job[1] for job in jobs]
        connection.execute(FINISH, (ids, claims), prepare=True)


if __name__ == "__main__":
    main()
