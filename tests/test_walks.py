"""Statements that walk an index step by step read a row or two for each step, whatever the planner
knows of the table.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.queries.cursor import statement
from tests.admin.test_overview_cost import nodes
from tests.factories import make_worker
from tests.planner import KNOWN, forget_jobs, plan_like_a_worker

pytestmark = pytest.mark.django_db

# So many that the indexes of ready jobs have one level more than that of the ids.
JOBS = 40_000
# Each in a lane of its own; their order is not that of the ids.
MANY_LANES = """
INSERT INTO pgjobs_job (task_path, queue_name, concurrency_key)
SELECT 'shop.tasks.send', %s || CASE WHEN %s THEN n - 1 ELSE 0 END, %s || 200000 - n
FROM generate_series(1, %s) AS n
"""
SHORT_OF_TOKENS = """
INSERT INTO pgjobs_rate_state (key, next_free)
SELECT 'mail:' || n, now() + interval '1 hour' FROM generate_series(1, 1000) AS n
"""
# What a claim asks of the place of all lanes of one queue.
PLACE = {
    "segment_backends": ["default"], "segment_queues": ["queue 0"], "segment_asyncs": [False],
    "segment_urgencies": [0], "segment_boosts": [0], "first_lanes": [""], "last_lanes": [None],
    "lane_backends": [], "lane_queues": [], "lane_asyncs": [], "floor_urgencies": [],
    "floor_ids": [], "lane_boosts": [], "full_queues": [], "rooms": [10, 10], "first_jobs": 1,
    "passed_over_paths": [], "passed_over": [], "takes_tokens": False, "skips_locked": False,
}  # fmt: skip
# What a claim of jobs without keys asks.
FIRST_TEN = {
    "lane_backends": ["default"], "lane_queues": ["queue 0"], "lane_asyncs": [False],
    "floor_urgencies": [-32768], "floor_ids": [0], "lane_jobs": [10], "passed_over_paths": [],
    "passed_over": [], "worker_name": "", "detailed": True, "detailed_paths": [],
}  # fmt: skip
WALKS: dict[str, dict[str, Any]] = {
    "list_ready_lanes": {"with_lowest": True},
    "list_missing_rates": {"names": [], "costs": [], "max_lanes": 100, "max_keys": 10},
    "get_token_wait": {"max_lanes": 100},
    "list_heads": PLACE,
    "wake_for_keys": {"channel": "nobody", "keys": [f"other {number}" for number in range(100)]},
    "claim_jobs": FIRST_TEN,
}


# Keys of 100 bytes make their indexes higher than the primary key.
@pytest.mark.slow
@pytest.mark.parametrize(
    "key", ["account ", "account " + 86 * "x", None], ids=["keyed", "long-keyed", "plain"]
)
@pytest.mark.parametrize("has_queues", [False, True], ids=["one-queue", "many-queues"])
@pytest.mark.parametrize("is_analyzed", [False, True], ids=["new", "analyzed"])
@pytest.mark.parametrize("known", KNOWN)
def test_a_step_reads_no_job_again_however_few_the_planner_knows_of(
    known: str, is_analyzed: bool, has_queues: bool, key: str | None
) -> None:
    with connection.cursor() as cursor:
        if is_analyzed:
            cursor.execute(MANY_LANES, ["", False, key, 1])
            cursor.execute("ANALYZE pgjobs_job_live")
        cursor.execute("TRUNCATE pgjobs_job CASCADE")
        cursor.execute(MANY_LANES, ["queue ", has_queues, key, JOBS])
        cursor.execute(SHORT_OF_TOKENS)
        forget_jobs(cursor, known)
        plan_like_a_worker(cursor)
        cursor.execute("SET LOCAL pgjobs.keyed_claim = 'held'; SET LOCAL jit = off")
        worker_id = make_worker(listening=True)
        read = {name: jobs_read(cursor, name, worker_id) for name in WALKS}
    most = dict.fromkeys(WALKS, 100) | {"get_token_wait": JOBS + 1}
    if has_queues:
        most["list_ready_lanes"] = 2 * JOBS + 1
    assert {name: count for name, count in read.items() if count > most[name]} == {}


def jobs_read(cursor: Any, name: str, worker_id: int) -> int:
    """Return how many rows of jobs a statement reads; it is cut off if it takes too long."""
    cursor.execute("SET LOCAL statement_timeout = '60s'")
    params = WALKS[name] | {"worker_id": worker_id}
    cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement(name)}", params)
    [(plan,)] = cursor.fetchall()
    [plan] = json.loads(plan) if isinstance(plan, str) else plan
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan["Plan"])
        if node.get("Relation Name") == "pgjobs_job_live"
    )
