"""Every number of the pages and metrics is true, with few, many and very many jobs."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from django.db import connection, transaction
from django.test import Client

from django_pgjobs.admin.overview import failures, page
from django_pgjobs.metrics import of_installation
from tests.sizes import (
    of_controls,
    of_jobs,
    of_metrics,
    of_overview,
    of_statistics,
    of_system,
    of_workers,
)
from tests.sizes.rows import fill

# What is rolled back would stay in the tables, and make other tests slow: these are emptied.
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.time_limit(1_200)
@pytest.mark.slow
@pytest.mark.parametrize("jobs", [600, 100_000, 1_000_000])
def test_every_number_is_that_of_the_rows(
    jobs: int,
    admin_client: Client,
    open_connection: Callable[..., psycopg.Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S5.5: the rows are made once, for all pages and metrics."""
    # A busy machine reads what was just written slowly.
    monkeypatch.setattr(page, "OVERVIEW_SECONDS", 60.0)
    monkeypatch.setattr(failures, "ASKED_SECONDS", 60.0)
    monkeypatch.setattr(of_installation, "ASKED_SECONDS", 60.0)
    with transaction.atomic(), connection.cursor() as cursor:
        fill(cursor, jobs)
        of_statistics.check(cursor)
    of_overview.check(admin_client)
    of_controls.check(admin_client)
    of_workers.check(admin_client)
    of_jobs.check(admin_client)
    of_system.check(admin_client, open_connection)
    of_metrics.check_installation(open_connection)
    of_metrics.check_worker()
