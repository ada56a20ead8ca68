"""Who counts batches, or looks after old ones, reads no others, whatever the planner knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.models import Batch
from django_pgjobs.queries import batch_care, batches, jobs
from django_pgjobs.queries.jobs import OldJobs
from tests.factories import make_batch, make_job, make_jobs
from tests.planner import KNOWN, blocks_read, forget, plan_like_a_worker, rows_read

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

OTHERS = 20_000
STEP = {
    "task_path": "tests.tasks.add", "queue_name": "default", "backend": "default", "priority": 0,
    "correlation_id": "", "tags": [], "metadata": {}, "is_declared": True, "is_async": False,
    "args": [], "kwargs": {}, "more": "",
}  # fmt: skip
# Of trees of ten batches that are complete, each behind the one before. So many jobs wait, in
# another order than that of the ids, that the index of their batches has one level more.
FILLS = {
    "pgjobs_batch": """
        INSERT INTO pgjobs_batch (
            id, root_id, parent_id, flow_id, sealed_at, completed_at, tree_completed_at, jobs,
            successful
        )
        SELECT
            n, n - n %% 10, NULLIF(n - n %% 10, n), n, now(), now(), now(), 1, 1
        FROM generate_series(100000, 99999 + %s) AS n
    """,
    "pgjobs_batch_edge": """
        INSERT INTO pgjobs_batch_edge (batch_id, waits_for)
        SELECT n, n - 1 FROM generate_series(100000, 99999 + %s) AS n WHERE n %% 10 > 0
    """,
    "pgjobs_batch_page": """
        INSERT INTO pgjobs_batch_page (batch_id, source_id)
        SELECT 900000 + n %% 2, n FROM generate_series(1, %s) AS n
    """,
    "pgjobs_batch_key": """
        INSERT INTO pgjobs_batch_key (batch_id, dedupe_key, job_id)
        SELECT 100000 + n, 'key', n FROM generate_series(1, %s) AS n
    """,
    "pgjobs_batch_change": """
        INSERT INTO pgjobs_batch_change (batch_id, jobs)
        SELECT 100000 + n, 0 FROM generate_series(1, LEAST(%s, 50)) AS n
    """,
    "pgjobs_job_live": """
        INSERT INTO pgjobs_job (task_path, batch_id, source_id)
        SELECT 'shop.tasks.send', 999999 - n, n FROM generate_series(1, 3 * %s) AS n
    """,
    "pgjobs_job_finished": """
        INSERT INTO pgjobs_job (task_path, batch_id, source_id, status, finished_at)
        SELECT 'shop.tasks.send', 99999 + n, n, 'successful', now()
        FROM generate_series(1, %s) AS n
    """,
}

# Read from the beginning to the end they give no rows.
INDEXES = ("pgjobs_job_live_pkey", "pgjobs_batch_root")


def settle(batch: int) -> Callable[[Any], object]:
    return lambda cursor: batches.settle(cursor, [batch])


def note(batch: int, **columns: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO pgjobs_batch_change (batch_id, {', '.join(columns)})"
            f" VALUES (%s, {', '.join(['%s'] * len(columns))})",
            [batch, *columns.values()],
        )


def make_step(follows: str, **columns: Any) -> tuple[int, int]:
    """Return a batch of jobs, and one that follows it."""
    before = make_batch(jobs=1)
    step = make_batch(parent_id=before, follows=follows, **columns)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_batch SET step = %s WHERE id = %s", [json.dumps(STEP), step])
        cursor.execute("INSERT INTO pgjobs_batch_edge VALUES (%s, %s)", [step, before])
    return before, step


def complete() -> Callable[[Any], object]:
    batch = make_batch(jobs=3, successful=2, failed_children=1)
    note(batch, successful=1)
    return settle(batch)


def seal() -> Callable[[Any], object]:
    batch = make_batch(jobs=3, successful=3, sealed_at=None)
    note(batch, seals=True)
    return settle(batch)


def count_what_is_gone() -> Callable[[Any], object]:
    note(900_009, successful=1)
    return settle(900_009)


def begin_again_after_all() -> Callable[[Any], object]:
    _, step = make_step("gather", open_predecessors=1, sealed_at=None, jobs=1, successful=1)
    make_job(batch_id=step, source_id=0, status="successful")
    note(step, predecessors=-1)
    return settle(step)


def begin_beside_a_retry() -> Callable[[Any], object]:
    _, step = make_step("gather")
    note(step, reopens=True)
    return settle(step)


def make_jobs_of_a_long_result() -> Callable[[Any], object]:
    before, step = make_step("each item", open_predecessors=1, sealed_at=None)
    source = make_job(batch_id=before, status="successful", result=[1, 2, 3])
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO pgjobs_batch_page VALUES (%s, %s)", [step, source])
    return settle(step)


def cancel() -> Callable[[Any], object]:
    batch = make_batch(jobs=3, successful=3, cancel_requested_at="now")
    make_jobs(3, batch_id=batch, source_id=1)
    note(batch, jobs=3)
    return settle(batch)


def count_again() -> Callable[[Any], object]:
    _, step = make_step("gather", jobs=3)
    return lambda cursor: batch_care.recount(cursor, [step])


def delete_trees() -> Callable[[Any], object]:
    root = make_batch(tree_completed_at="now", completed_at="now", deleting_at="now")
    make_jobs(3, batch_id=root, status="successful")

    def delete(cursor: Any) -> None:
        assert batch_care.begin_deletion(cursor, [root]) == [root]
        assert len(batch_care.delete_tree_jobs(cursor, [root], max_jobs=100)) == 3
        assert batch_care.delete_batches(cursor, [root], max_batches=100) == [True]

    return delete


def prune() -> Callable[[Any], object]:
    old = make_jobs(3, status="successful", finished_at="2020-01-01")
    return lambda cursor: jobs.prune_jobs(cursor, OldJobs("successful", 3600.0), max_jobs=len(old))


STEPS = (
    complete, seal, count_what_is_gone, begin_again_after_all, begin_beside_a_retry,
    make_jobs_of_a_long_result, cancel, count_again, delete_trees, prune,
)  # fmt: skip


@pytest.mark.parametrize("is_analyzed", [False, True], ids=["new", "analyzed"])
@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("by_worker", [True, False], ids=["worker", "django"])
def test_no_rows_of_others_are_read(by_worker: bool, known: str, is_analyzed: bool) -> None:
    with connection.cursor() as cursor:
        # Files of their own: what tests before this one have left changes what plans cost.
        cursor.execute("TRUNCATE pgjobs_job, pgjobs_batch")
        for fill in FILLS.values():
            cursor.execute(fill, [OTHERS])
        if is_analyzed:
            cursor.execute(f"ANALYZE {', '.join(FILLS)}")
        forget(cursor, known, FILLS)
        if by_worker:
            plan_like_a_worker(cursor)
        read = {step.__name__: rows_of_each(cursor, step) for step in STEPS}
    assert {name: many for name, many in read.items() if many} == {}


def rows_of_each(cursor: Any, prepare: Callable[[], Callable[[Any], object]]) -> dict[str, int]:
    """Return of which tables what was prepared reads many rows."""
    point = connection.savepoint()
    run = prepare()
    rows = {table: rows_read(cursor, table) for table in FILLS}
    blocks = {index: blocks_read(cursor, index) for index in INDEXES}
    run(cursor)
    read = {table: rows_read(cursor, table) - rows[table] for table in FILLS}
    of_indexes = {index: blocks_read(cursor, index) - blocks[index] for index in INDEXES}
    connection.savepoint_rollback(point)
    return {table: many for table, many in read.items() if many > 1000} | {
        index: many for index, many in of_indexes.items() if many > 100
    }


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("by_worker", [True, False], ids=["worker", "django"])
def test_a_batch_is_found_by_its_id_alone(by_worker: bool, known: str) -> None:
    table = "pgjobs_batch"
    with connection.cursor() as cursor:
        cursor.execute(FILLS[table], [OTHERS])
        forget(cursor, known, [table])
        if by_worker:
            plan_like_a_worker(cursor)
        before = blocks_read(cursor, table)
        assert Batch.objects.get(pk=110_000).jobs == 1
        # 84 if all of an index is read.
        assert blocks_read(cursor, table) - before < 40
