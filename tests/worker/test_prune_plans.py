"""The pruner reads few rows of others, also by statistics that are of other rows than there are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgjobs.queries import batch_care, dependencies, expiry, jobs, schedules, statistics
from django_pgjobs.queries.batch_care import TreeRetention
from django_pgjobs.queries.jobs import OldJobs
from tests.factories import make_batch, make_jobs
from tests.planner import KNOWN, forget, plan_like_a_worker, rows_read
from tests.worker.test_settle_plans import FILLS, delete_trees, prune

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

OTHERS = 20_000
TABLES = (
    "pgjobs_batch", "pgjobs_dependency", "pgjobs_job_live", "pgjobs_job_finished",
    "pgjobs_occurrence", "pgjobs_statistic", "pgjobs_statistic_sum",
)  # fmt: skip
FILL = {
    "pgjobs_batch": FILLS["pgjobs_batch"],
    "pgjobs_job_finished": FILLS["pgjobs_job_finished"],
    "pgjobs_dependency": """
        INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)
        SELECT n, n + 1, 'cancel' FROM generate_series(1000000, 999999 + %s) AS n
    """,
    "pgjobs_job_live": """
        INSERT INTO pgjobs_job (task_path, expires_at)
        SELECT 'shop.tasks.send', now() + n * interval '1 day' FROM generate_series(1, %s) AS n
    """,
    "pgjobs_statistic": """
        INSERT INTO pgjobs_statistic (begins_at, period, queue_name, task_path)
        SELECT now() - n * interval '1 second', 'minute', 'mail', 'shop.tasks.send'
        FROM generate_series(1, %s) AS n
    """,
    "pgjobs_statistic_sum": """
        INSERT INTO pgjobs_statistic_sum (begins_at, period, queue_name)
        SELECT now() - n * interval '1 second', 'minute', 'mail'
        FROM generate_series(1, %s) AS n
    """,
    "pgjobs_occurrence": """
        INSERT INTO pgjobs_occurrence (schedule, scheduled_for, outcome)
        SELECT 'nightly', now() - n * interval '1 day', 'enqueued'
        FROM generate_series(1, %s) AS n
    """,
}
# All had ended long ago, as one batch, when the tables were analyzed.
OLD = """
WITH jobs AS (
    INSERT INTO pgjobs_job (task_path, batch_id, status, finished_at)
    SELECT 'shop.tasks.send', 1, 'successful', now() - interval '1 year'
    FROM generate_series(1, 300)
), batches AS (
    INSERT INTO pgjobs_batch (id, root_id, flow_id, sealed_at, completed_at, tree_completed_at)
    SELECT n, n, n, now(), now(), now() - interval '1 year' FROM generate_series(1, 300) AS n
), waiting AS (
    INSERT INTO pgjobs_job (task_path, expires_at)
    SELECT 'shop.tasks.send', now() - interval '1 year' FROM generate_series(1, 300)
), statistics AS (
    INSERT INTO pgjobs_statistic (begins_at, period, queue_name, task_path)
    SELECT now() - interval '1 year', 'minute', 'mail', 'shop.tasks.send'
    FROM generate_series(1, 300)
), sums AS (
    INSERT INTO pgjobs_statistic_sum (begins_at, period, queue_name)
    SELECT now() - n * interval '1 year', 'minute', 'mail' FROM generate_series(1, 20) AS n
), edges AS (
    INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)
    SELECT 1, n, 'cancel' FROM generate_series(1, 300) AS n
)
INSERT INTO pgjobs_occurrence (schedule, scheduled_for, created_at, outcome)
SELECT 'nightly', now() - n * interval '1 minute', now() - interval '1 year', 'enqueued'
FROM generate_series(1, 300) AS n
"""


def count() -> Callable[[Any], object]:
    make_jobs(3, status="failed", finished_at="2020-01-01")
    return lambda cursor: jobs.count_old_jobs(cursor, OldJobs("failed", 3600.0), max_jobs=100)


def prune_after_a_page() -> Callable[[Any], object]:
    """Looks no further back than the page before it has left rows."""
    make_jobs(3, status="successful", finished_at="2020-01-01")
    return lambda cursor: jobs.prune_jobs(cursor, OldJobs("successful", 3600.0, 60.0), max_jobs=10)


def expire() -> Callable[[Any], object]:
    make_jobs(3, expires_at="2020-01-01")
    return lambda cursor: expiry.expire_jobs(cursor, max_jobs=100)


def list_trees() -> Callable[[Any], object]:
    kept = TreeRetention(3600.0, 3600.0, 0.0)
    return lambda cursor: batch_care.count_due_trees(cursor, kept, max_trees=100)


def recount() -> Callable[[Any], object]:
    opened = make_batch(sealed_at=None)

    def recount_open(cursor: Any) -> None:
        assert (opened, False) in batch_care.list_open(cursor, behind=0, max_batches=100)
        batch_care.recount(cursor, [opened])

    return recount_open


def prune_statistics() -> Callable[[Any], object]:
    return lambda cursor: statistics.prune_statistics(cursor, retention=86_400.0)


def prune_occurrences() -> Callable[[Any], object]:
    return lambda cursor: schedules.prune_occurrences(cursor, retention=3600.0, max_occurrences=100)


def sweep() -> Callable[[Any], object]:
    return lambda cursor: dependencies.sweep_dependencies(
        cursor, dependencies.BEGIN, max_dependencies=10, acts=False
    )


# `Batch.delete` does the last one, and where the planner is free the others are to do as well.
FREE = (prune, prune_after_a_page, count, delete_trees)
STEPS = {
    True: (*FREE, expire, list_trees, recount, prune_occurrences, prune_statistics, sweep),
    False: FREE,
}


def analyze(cursor: Any) -> None:
    cursor.execute(f"ANALYZE {', '.join(TABLES)}")


def never(cursor: Any) -> None:
    cursor.execute(
        "DELETE FROM pg_catalog.pg_statistic WHERE starelid = ANY (%s::regclass[])", [list(TABLES)]
    )


def of_old(cursor: Any) -> None:
    cursor.execute(OLD)
    analyze(cursor)


@pytest.mark.parametrize("before", [never, analyze, of_old])
@pytest.mark.parametrize("is_analyzed", [False, True], ids=["", "analyzed"])
def test_no_rows_of_others_are_read(
    before: Callable[[Any], None], is_analyzed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*before*: what the statistics are of that are there when the tables are filled."""
    read = {}
    with connection.cursor() as cursor:
        monkeypatch.setattr(connection.connection, "prepare_threshold", 0)
        clear(cursor)
        before(cursor)
        clear(cursor)
        for fill in FILL.values():
            cursor.execute(fill, [OTHERS])
        if is_analyzed:
            analyze(cursor)
        for known, by_worker in product([None, *KNOWN], [True, False]):
            point = connection.savepoint()
            if known:
                forget(cursor, known, TABLES)
            asks = like_a_worker(cursor) if by_worker else cursor
            for step in STEPS[by_worker]:
                read[known, by_worker, step.__name__] = rows_of_each(cursor, asks, step)
            connection.savepoint_rollback(point)
    assert {case: many for case, many in read.items() if many} == {}


def clear(cursor: Any) -> None:
    """Give the tables files of their own, in which nothing is."""
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    cursor.execute(f"TRUNCATE pgjobs_job, {', '.join(TABLES[:2])}, {', '.join(TABLES[4:])}")


def like_a_worker(cursor: Any) -> Any:
    """Return a cursor that plans as those of a worker: prepared statements, for any values."""
    plan_like_a_worker(cursor)
    cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    cursor.execute("DEALLOCATE ALL")
    return psycopg.Cursor(connection.connection)


def rows_of_each(
    cursor: Any, asks: Any, prepare: Callable[[], Callable[[Any], object]]
) -> dict[str, int]:
    """Return of which tables what was prepared reads many rows; *asks* is who does it."""
    point = connection.savepoint()
    run = prepare()
    rows = {table: rows_read(cursor, table) for table in TABLES}
    run(asks)
    read = {table: rows_read(cursor, table) - rows[table] for table in TABLES}
    connection.savepoint_rollback(point)
    return {table: many for table, many in read.items() if many > 1000}
