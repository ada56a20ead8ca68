"""Results of which jobs are still to be made: what looks for them reads no others."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_pgjobs.queries import batches
from tests.factories import make_job, make_jobs
from tests.helpers import execute
from tests.planner import KNOWN, blocks_read, forget, plan_like_a_worker, rows_read
from tests.worker.test_batches import open_batch

pytestmark = pytest.mark.django_db

# They fill an index of some forty blocks.
KEPT = 10_000
JOBS = 2_000


@pytest.mark.parametrize("tables", ["pgjobs_batch, pgjobs_batch_page", "pgjobs_batch"])
def test_what_belongs_to_batches_is_truncated_with_them(tables: str) -> None:
    """Also where the statement names some of it, as one that empties all tables does."""
    flow = open_batch(1)
    execute(
        "INSERT INTO pgjobs_batch_key (batch_id, dedupe_key, job_id) VALUES (%s, 'x', 1)", flow.pk
    )
    execute("INSERT INTO pgjobs_batch_page (batch_id, source_id) VALUES (%s, 1)", flow.pk)
    execute(f"TRUNCATE {tables}")
    for table in ("batch_change", "batch_edge", "batch_key", "batch_page"):
        assert execute(f"SELECT count(*) FROM pgjobs_{table}") == [(0,)]


@pytest.mark.parametrize("known", [*KNOWN, "all"])
def test_what_a_cancelled_batch_keeps_is_not_read(known: str) -> None:
    """Each of its rows would be, each second and whenever a job of the batch ends."""
    # Files of their own: the planner reads past what tests before this one have left.
    execute("TRUNCATE pgjobs_batch")
    flow = open_batch()
    execute("UPDATE pgjobs_batch SET cancel_requested_at = now() WHERE id = %s", flow.pk)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_batch_page (batch_id, source_id, is_kept)"
            " SELECT %s, generate_series(1, %s), TRUE",
            [flow.pk, KEPT],
        )
        cursor.execute("ANALYZE pgjobs_batch_page")
        if known != "all":
            forget(cursor, known, ["pgjobs_batch_page"])
        plan_like_a_worker(cursor)
        before = rows_read(cursor, "pgjobs_batch_page"), blocks_read(cursor, "pgjobs_batch_page")
        assert batches.list_changed(cursor) == []
        execute("SELECT pgjobs_expand_page_v1(ARRAY[%s], 100)", flow.pk)
        after = rows_read(cursor, "pgjobs_batch_page"), blocks_read(cursor, "pgjobs_batch_page")
    assert 0 < after[0] - before[0] < 10
    assert after[1] - before[1] < 30


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
        plan_like_a_worker(cursor)
        before = rows_read(cursor, "pgjobs_job_live")
        assert batches.list_changed(cursor) == [flow.pk]
        after = rows_read(cursor, "pgjobs_job_live")
    assert after - before < 10
