"""Results of which jobs are still to be made: what looks for them reads no others."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from django_pgjobs.queries import batches
from tests.worker.test_batches import execute, open_batch

pytestmark = pytest.mark.django_db

KEPT = 1_000
READ = """
SELECT seq_tup_read + idx_tup_fetch
FROM pg_catalog.pg_stat_xact_user_tables WHERE relname = 'pgjobs_batch_page'
"""


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
        # As the worker's connections plan.
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SET LOCAL enable_bitmapscan = off")
        [(before,)] = execute(READ)
        assert batches.list_changed(cursor) == []
        execute("SELECT pgjobs_expand_page_v1(ARRAY[%s], 100)", flow.pk)
        [(after,)] = execute(READ)
    assert 0 < after - before < 10
