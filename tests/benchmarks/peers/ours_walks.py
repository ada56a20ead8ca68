"""Claims of jobs with keys against full lanes, each a round trip with its commit; medians in ms.

What a claim took is finished before the next one, as a worker does, so that all meet the same.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import django

REPEATS = 15

WORKER = """
INSERT INTO pgjobs_worker (name, host, pid, version, slots, backends, task_paths, excluded_queues,
    started_at, heartbeat_at, lease_expires_at, lost, listening)
VALUES ('bench', '', 1, '', 4, '{default}', '{}', '{}', now(), now(), now() + '1 day', false, false)
RETURNING id
"""
RUNNING = """
INSERT INTO pgjobs_job (task_path, concurrency_key, concurrency_limit, status, claim)
SELECT 'ours_tasks.noop', %s || n %% %s, 5, 'running', 1 FROM generate_series(1, %s) AS n
"""
READY = """
INSERT INTO pgjobs_job (task_path, concurrency_key, concurrency_limit)
SELECT 'ours_tasks.noop', %s || n %% %s, 5 FROM generate_series(1, %s) AS n
"""
PLAIN = """
INSERT INTO pgjobs_job (task_path) SELECT 'ours_tasks.noop' FROM generate_series(1, %s)
"""


def measure(own: Any, sends: Any, claimed: int | None) -> list[float]:
    """Return the milliseconds of each round trip; the last statement claims so many jobs."""
    from django_pgjobs.queries import claims, jobs

    times = []
    for _ in range(REPEATS + 5):
        begin = time.perf_counter()
        rows = own.round_trip(sends)[-1]
        times.append((time.perf_counter() - begin) * 1000)
        if claimed is None:
            continue
        assert len(rows) == claimed, (len(rows), claimed)
        ended = claims.claimed_rows(rows, 0.0)
        done = [jobs.Success(row.id, row.claim, "", 0.0, 0.0) for row in ended]
        if done:
            own.round_trip([lambda cursor, done=done: jobs.send_successes(cursor, done)])
    return times


def main() -> None:
    from django_pgjobs.choosing import Rooms
    from django_pgjobs.queries import claims
    from django_pgjobs.queries.claims import HEAD, Group, Lane, Scope, Segment
    from django_pgjobs.queries.connection import OwnConnection
    from django_pgjobs.worker.claiming.keyed_claim import KeyedClaim

    own = OwnConnection("default", "bench")
    connection = own.open()

    def execute(query: str, *parameters: object) -> None:
        connection.execute(query, parameters or None, prepare=False)

    # What is written by hand names no schema.
    execute("SET search_path = public")
    execute("TRUNCATE pgjobs_job, pgjobs_worker")
    [(worker_id,)] = connection.execute(WORKER, prepare=False).fetchall()
    taker = claims.Taker(
        worker_id=worker_id,
        worker_name="bench",
        passed_over_paths=[],
        detailed=False,
        detailed_paths=[],
    )
    segments = [Segment(Group("default", "default", 0))]
    plain = {Lane("default", "default"): HEAD}
    rooms = Rooms(20, 20)

    scope = Scope(floors={}, segments=segments, boosts={}, slots={}, rooms=rooms, max_jobs=20)
    statements = KeyedClaim(scope, taker).statements
    # What is spent of rate limits stays out: these jobs have none.
    keyed = (claims.send_hold, *statements.before, statements.take)

    def send_plain(cursor: Any) -> None:
        claims.send_claim(cursor, plain, rooms=rooms, max_jobs=20, taker=taker)

    def median(*sends: Any, claimed: int | None = None) -> float:
        return statistics.median(measure(own, sends, claimed)[5:])

    figures = {"commit": median(claims.send_hold)}
    execute(PLAIN, 20_000)
    execute("VACUUM ANALYZE")
    figures["alone"] = median(send_plain, claimed=20)
    execute(RUNNING, "hot", 1, 5)
    execute(READY, "hot", 1, 1_000_000)
    execute(READY, "key", 1_000, 20_000)
    execute("VACUUM ANALYZE")
    figures["million"] = median(*keyed, claimed=20)
    figures["beside"] = median(send_plain, claimed=20)
    execute("TRUNCATE pgjobs_job")
    execute(RUNNING, "key", 1_000, 5_000)
    execute(READY, "key", 1_000, 20_000)
    execute("VACUUM ANALYZE")
    figures["blocked"] = median(*keyed, claimed=0)
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    django.setup()
    main()
