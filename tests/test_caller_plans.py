"""Who asks of few jobs or batches on Django's connections reads few, whatever the planner knows."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from django_pgjobs.queries.cursor import fetch
from tests.factories import make_batch, make_job, make_jobs
from tests.planner import KNOWN, forget, rows_read

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

OTHERS = 3_000
JOBS = ["pgjobs_job_live", "pgjobs_job_finished"]
BATCHES = ["pgjobs_batch", "pgjobs_batch_edge"]
TABLES = [*JOBS, *BATCHES, "pgjobs_dependency"]
FILLS = (
    """
    INSERT INTO pgjobs_batch (
        id, root_id, parent_id, flow_id, sealed_at, completed_at, tree_completed_at
    )
    SELECT n, n - n %% 10, NULLIF(n - n %% 10, n), n, now(), now(), now()
    FROM generate_series(100000, 99999 + %s) AS n
    """,
    """
    INSERT INTO pgjobs_batch_edge (batch_id, waits_for)
    SELECT n, n - 1 FROM generate_series(100000, 99999 + %s) AS n WHERE n %% 10 > 1
    """,
    """
    INSERT INTO pgjobs_job (task_path, queue_name, batch_id, status, finished_at)
    SELECT
        'shop.tasks.send', 'queue', CASE WHEN kind.status <> 'ready' THEN 99999 + n END,
        kind.status, kind.finished_at
    FROM generate_series(1, %s) AS n
    CROSS JOIN (
        VALUES ('ready', NULL), ('failed', now()), ('cancelled', now()), ('successful', now())
    ) AS kind (status, finished_at)
    """,
    """
    INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)
    -- So many that to read the table costs more than an index, which PostgreSQL 15 deems dear.
    SELECT n, n + 1, 'cancel' FROM generate_series(900000, 899999 + 5 * %s) AS n
    """,
)
LANES = """
INSERT INTO pgjobs_job (task_path, queue_name, concurrency_key)
SELECT 'shop.tasks.send', 'queue', CASE WHEN n %% 2 = 0 THEN 'account ' || n END
FROM generate_series(1, %s) AS n
"""
# Of the job that is next, and of the first ten.
PLACES: dict[str, dict[str, Any]] = {
    "explain_lane": {"max_named": 10},
    "explain_place": {"max_jobs": 10},
    "list_rate_keys": {"max_jobs": 10, "max_limits": 10, "max_states": 10, "max_keys": 10},
    "list_concurrency_keys": {"max_jobs": 10, "max_running": 10, "max_keys": 10},
}
AT_ONCE = {"run_after": None, "delay": None, "spread": 0.0}
STATEMENTS: dict[str, dict[str, Any]] = {
    "cancel_jobs": {"statuses": ["ready", "running"], "max_dependencies": 100},
    "discard_jobs": {"note": "", "max_dependencies": 100},
    "requeue_jobs": {
        **AT_ONCE,
        "statuses": ["failed", "cancelled"],
        "note": "",
        "despite_cancels": False,
    },
    "reschedule_jobs": AT_ONCE,
    "delete_jobs": {"statuses": ["failed", "cancelled"]},
    "check_dependencies": {},
    "list_dependants": {"max_jobs": 100},
    "find_requeue_refusals": {},
    "explain_job": {"max_named": 10},
    "list_not_run": {"max_batches": 10},
    "list_batches_below": {"follows": None},
    "list_tree": {"behind": 0, "max_children": 10, "max_batches": 10, "max_named": 10},
    "describe_batch": {"max_named": 10, "max_counted": 10},
}


@pytest.mark.parametrize("jobs", [1, 5])
@pytest.mark.parametrize("known", [*KNOWN, "all"])
def test_no_others_are_read(known: str, jobs: int) -> None:
    with connection.cursor() as cursor:
        # Files of their own: what tests before this one have left changes what plans cost.
        cursor.execute("TRUNCATE pgjobs_job, pgjobs_batch, pgjobs_dependency")
    owner = make_batch(tree_completed_at="now")
    before = make_batch(parent_id=owner)
    batch = make_batch(parent_id=owner)
    finished = make_jobs(jobs, batch_id=batch, status="failed")
    waiting = make_jobs(jobs)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO pgjobs_batch_edge VALUES (%s, %s)", [batch, before])
        for text in FILLS:
            cursor.execute(text, [OTHERS])
        know(cursor, known)
        params = {"id": finished[0], "job_id": finished[0], "ids": finished + waiting}
        params |= {"batch_id": batch, "parent_id": owner, "waits_for": [before]}
        read = {name: read_by(cursor, name, params | more) for name, more in STATEMENTS.items()}
    assert {name: rows for name, rows in read.items() if rows > 50 * jobs} == {}


@pytest.mark.parametrize("known", [*KNOWN, "all"])
def test_who_asks_for_the_first_jobs_reads_no_others(known: str) -> None:
    first = make_job(concurrency_key="first", priority=100)
    with connection.cursor() as cursor:
        cursor.execute(LANES, [OTHERS])
        know(cursor, known)
        read = {name: read_by(cursor, name, {"id": first} | more) for name, more in PLACES.items()}
    assert {name: rows for name, rows in read.items() if rows > 100} == {}


def know(cursor: Any, known: str) -> None:
    cursor.execute(f"ANALYZE {', '.join(TABLES)}")
    # Not of edges, and of few rows only of jobs: elsewhere the planner then takes an index for as
    # long as the table, whatever the statement says.
    if known == "empty":
        forget(cursor, known, [*JOBS, "pgjobs_batch", "pgjobs_dependency"])
    elif known in KNOWN:
        forget(cursor, known, JOBS)


def read_by(cursor: Any, name: str, params: dict[str, Any]) -> int:
    """Return how many rows a statement reads; what it changes is taken back."""
    before = sum(rows_read(cursor, table) for table in TABLES)
    with transaction.atomic():
        fetch(cursor, name, params)
        transaction.set_rollback(True)
    return sum(rows_read(cursor, table) for table in TABLES) - before


PARTS = 1_000
# Of a tree of one batch with many parts, which are nearly all batches that there are.
WIDE: dict[str, dict[str, Any]] = {
    "has_cancels": {},
    "lock_tree": {},
    "uncancel_batches": {},
    "count_batches": {"of_tree": True},
    "summarise_trees": {"max_batches": PARTS},
    "list_tree": {"behind": 0, "max_children": PARTS, "max_batches": PARTS, "max_named": 10},
    "list_failed_in_tree": {"max_batches": PARTS, "max_jobs": 10, "max_looked_at": 100},
    "list_unsuccessful": {
        "statuses": ["failed"],
        "of_gather_and_then": False,
        "despite_failures": False,
        "behind_batch": 0,
        "behind_id": 0,
        "max_jobs": PARTS,
    },
}


def test_who_walks_a_wide_tree_reads_each_part_a_few_times() -> None:
    """Not all of them for each: the planner knows that most batches have one parent."""
    root = make_batch(failed=0)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            WITH part AS (
                INSERT INTO pgjobs_batch (id, root_id, parent_id, flow_id, sealed_at, jobs, failed)
                SELECT n, %(root)s, %(root)s, n, now(), 1, 1
                FROM generate_series(100000, 99999 + %(parts)s) AS n
                RETURNING id
            )
            INSERT INTO pgjobs_job (task_path, batch_id, status, finished_at)
            SELECT 'shop.tasks.send', part.id, 'failed', now() FROM part
            """,
            {"root": root, "parts": PARTS},
        )
        know(cursor, "all")
        params = {"batch_id": root, "ids": [root]}
        read = {name: read_by(cursor, name, params | more) for name, more in WIDE.items()}
    assert {name: rows for name, rows in read.items() if rows > 20 * PARTS} == {}
