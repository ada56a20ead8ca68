"""What the tests of the Overview share."""

from __future__ import annotations

import re
from typing import Any

from django.db import connection
from django.test import Client
from django.urls import reverse

from django_pgjobs.admin.overview.chart import RANGES, SPLITS
from django_pgjobs.admin.overview.page import describe, read_numbers

LOCAL_CACHE = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}


def numbers(key: str = "1h", by: str = "outcome") -> dict[str, Any]:
    """Return what the page is drawn from."""
    chosen, split = RANGES[key], SPLITS[by]
    return describe(read_numbers(chosen, split), chosen, split)


def read(client: Client, **query: str) -> str:
    """Return the text of the Overview."""
    response = client.get(reverse("admin:app_list", args=["pgjobs"]), query)
    assert response.status_code == 200
    return response.content.decode()


def words(text: str) -> str:
    """Return a page's text without tags, on one line."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


RECORD = """
INSERT INTO pgjobs_statistic (begins_at, queue_name, task_path, successful, failed, cancelled)
SELECT
    date_trunc('minute', job.finished_at, 'UTC'), job.queue_name, job.task_path,
    count(*) FILTER (WHERE job.status = 'successful'),
    count(*) FILTER (WHERE job.status = 'failed'),
    count(*) FILTER (WHERE job.status = 'cancelled')
FROM pgjobs_job_finished AS job
WHERE job.finished_at < statement_timestamp() - interval '75 seconds'
GROUP BY 1, 2, 3
"""


def record() -> None:
    """Let the statistics say what finished, as workers would have done.

    Of jobs that finished between 15 and 75 seconds ago nobody knows whether that was done.
    """
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE pgjobs_statistic, pgjobs_statistic_sum")
        cursor.execute(RECORD)
