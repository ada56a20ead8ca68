"""A page of a bulk change reads few jobs, whatever the planner knows of their number."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.models import Q

from django_pgjobs.bulk.selection import Selection
from django_pgjobs.bulk.walk import Walk
from tests.planner import KNOWN, forget_jobs, rows_read

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

JOBS = 50_000
WINDOW = 500
FILL = """
INSERT INTO pgjobs_job (task_path, status, finished_at)
SELECT 'shop.tasks.send', kind.status, kind.finished_at - n * interval '1 ms'
FROM generate_series(1, %s) AS n
CROSS JOIN (
    VALUES ('ready', NULL), ('failed', now()), ('failed', NULL)
) AS kind (status, finished_at)
"""


@pytest.mark.parametrize("known", KNOWN)
def test_a_page_reads_its_window(known: str) -> None:
    with connection.cursor() as cursor:
        # What earlier tests have left in the files counts for the planner.
        cursor.execute("TRUNCATE pgjobs_job CASCADE")
        cursor.execute(FILL, [JOBS])
        forget_jobs(cursor, known)
        walk = Walk(
            Selection({}).pinned(),
            ("ready", "failed"),
            Q(),
            lambda jobs: jobs,
            page_jobs=100,
            window_rows=WINDOW,
        )
        for number, table in enumerate(["pgjobs_job_live", *["pgjobs_job_finished"] * 2]):
            before = rows_read(cursor, table)
            ids, position = walk.page({"leg": number})
            assert (len(ids), position and position["leg"]) == (100, number)
            # Those without an end are between the others.
            assert rows_read(cursor, table) - before < 3 * WINDOW
