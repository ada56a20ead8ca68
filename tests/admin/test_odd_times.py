"""Rows whose times Python has no datetime for: no page, command or reader falls because of them.

PostgreSQL has `infinity`, and years after 9999. Constraints refuse some of that in some columns;
what a table holds all the same, by raw SQL or from before there was a constraint, is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import product
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, models
from django.test import Client

from django_pgjobs import models as pgjobs_models
from django_pgjobs.backend import PgJobsBackend
from django_pgjobs.compat import task_backends
from django_pgjobs.models import Job, RateState
from tests.admin.test_view_only import NAMES, Rows
from tests.helpers import some_always
from tests.odd_rows import admit_odd_values

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

ODD = ("infinity", "-infinity", "20000-01-01 00:00:00+00", "4000-01-01 00:00:00+00 BC")


def tables() -> dict[str, list[str]]:
    """Return table -> its columns that hold times."""
    found = [getattr(pgjobs_models, name) for name in pgjobs_models.__all__]
    return {
        model._meta.db_table: [
            field.column for field in model._meta.fields if isinstance(field, models.DateTimeField)
        ]
        for model in found
        if isinstance(model, type) and issubclass(model, models.Model)
    }


def make_odd(value: str, *, only: Callable[[str, str], bool] = lambda table, column: True) -> Rows:
    """Make one row of everything, and write *value* into every column that has a time."""
    admit_odd_values()
    rows = Rows()
    RateState.objects.create(key="api:1", next_free="2030-01-01T00:00Z")
    with connection.cursor() as cursor:
        # No table is altered whose rows are still to be checked.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            "SELECT conrelid::regclass, conname FROM pg_constraint"
            " WHERE contype = 'c' AND conrelid::regclass::text LIKE 'pgjobs\\_%'"
            " AND conislocal AND coninhcount = 0"
        )
        for table, name in cursor.fetchall():
            cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
        for table, columns in tables().items():
            for column in columns:
                if only(table, column):
                    # An empty time stays empty: what is not finished has no end.
                    cursor.execute(
                        f"UPDATE {table} SET {column} = %s WHERE {column} IS NOT NULL", [value]
                    )
    return rows


def test_all_tables_have_times_that_are_tried() -> None:
    assert {"pgjobs_job", "pgjobs_worker", "pgjobs_pause", "pgjobs_rate_state"} < set(tables())
    assert len(tables()["pgjobs_job"]) >= 7


@pytest.mark.parametrize("value", some_always(ODD, every=4))
def test_every_page_is_drawn(admin_client: Client, value: str) -> None:
    rows = make_odd(value)
    for address in [address for name in NAMES for address in rows.addresses(name)]:
        try:
            assert admin_client.get(address).status_code < 500
        except Exception as error:
            error.add_note(address)
            raise


@pytest.mark.parametrize(
    ("column", "value"), some_always(product(sorted(tables()["pgjobs_job"]), ODD), every=9)
)
def test_one_odd_time_beside_good_ones_is_shown(
    admin_client: Client, column: str, value: str
) -> None:
    """What is between two times is computed, too."""
    rows = make_odd(value, only=lambda table, name: table == "pgjobs_job" and name == column)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE pgjobs_job SET {column} = %s", [value])
    for name in ("pgjobs_job_change", "pgjobs_job_changelist", "pgjobs_job_overview"):
        for address in rows.addresses(name):
            assert admin_client.get(address).status_code == 200, address
    for query in ("tab=failed", "tab=successful", "tab=all", "duration__range__gte=1", "q=x"):
        [address] = rows.addresses("pgjobs_job_changelist")
        assert admin_client.get(f"{address}?{query}").status_code == 200, query
    for job_id in rows.jobs.values():
        [address] = rows.addresses("pgjobs_job_change")
        address = address.replace(str(rows.jobs["failed"]), str(job_id))
        assert admin_client.get(address).status_code == 200, address


@pytest.mark.parametrize("value", ODD)
def test_jobs_are_read_by_the_model_the_backend_and_the_command(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = make_odd(value)
    for job in Job.objects.all():
        assert isinstance(job.enqueued_at, datetime)
        assert job.enqueued_at.year in (1, 9999)
    for values in Job.objects.values("finished_at", "started_at"):
        assert values["finished_at"] is None or values["finished_at"].year in (1, 9999)
    backend: Any = task_backends["default"]
    assert isinstance(backend, PgJobsBackend)
    for job_id in rows.jobs.values():
        assert backend.get_result(str(job_id)).enqueued_at.year in (1, 9999)
        call_command("jobs", "explain", str(job_id))
        call_command("jobs", "show", str(job_id))
        call_command("jobs", "show", str(job_id), "--json")
    call_command("jobs", "list")
    call_command("jobs", "list", "--json")
    assert capsys.readouterr().out
