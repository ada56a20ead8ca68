"""Results of which jobs are still to be made: what looks for them reads no others."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_pgjobs.queries import batches
from django_pgjobs.queries.own_settings import SERVER_SETTINGS
from tests.factories import make_job, make_jobs
from tests.worker.test_batches import execute, open_batch

pytestmark = pytest.mark.django_db

KEPT = 1_000
JOBS = 2_000
READ = """
SELECT seq_tup_read + idx_tup_fetch
FROM pg_catalog.pg_stat_xact_user_tables WHERE relname = %s
"""


def rows_read(table: str) -> int:
    """Return how many rows of a table this transaction has read."""
    [(rows,)] = execute(READ, table)
    return int(rows)


def plan_like_a_worker() -> None:
    """Let this transaction plan as the connections of a worker do."""
    for name, value in SERVER_SETTINGS.items():
        if name.startswith("enable_"):
            execute("SELECT set_config(%s, %s, TRUE)", name, value)


def test_what_a_cancelled_batch_keeps_is_not_read() -> None:
    """Each of its rows would be, each second and whenever a job of the batch ends."""
    flow = open_batch()
    execute("UPDATE pgjobs_batch SET cancel_requested_at = now() WHERE id = %s", flow.pk)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_batch_page (batch_id, source_id, is_kept)"
            " SELECT %s, generate_series(1, %s), TRUE",
            [flow.pk, KEPT],
        )
        plan_like_a_worker()
        before = rows_read("pgjobs_batch_page")
        assert batches.list_changed(cursor) == []
        execute("SELECT pgjobs_expand_page_v1(ARRAY[%s], 100)", flow.pk)
        after = rows_read("pgjobs_batch_page")
    assert 0 < after - before < 10


def test_what_is_still_to_be_made_of_a_result_reads_no_other_jobs() -> None:
    """The jobs that were made of it so far are there."""
    flow = open_batch()
    source = make_job("tests.tasks.add", status="successful")
    with transaction.atomic(), connection.cursor() as cursor:
        make_jobs(JOBS)
        cursor.execute(
            "INSERT INTO pgjobs_batch_page (batch_id, source_id) VALUES (%s, %s)",
            [flow.pk, source],
        )
        plan_like_a_worker()
        before = rows_read("pgjobs_job_live")
        assert batches.list_changed(cursor) == [flow.pk]
        after = rows_read("pgjobs_job_live")
    assert after - before < 10
