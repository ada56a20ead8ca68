"""Django's own flush, which every TransactionTestCase of a project does, empties all our tables."""

from __future__ import annotations

import pytest
from django.core.management.color import no_style
from django.db import connection

from django_pgjobs import workflow
from django_pgjobs.models import Batch
from tests import tasks


@pytest.mark.django_db(transaction=True)
def test_a_flush_without_cascade_leaves_nothing_of_batches() -> None:
    """What is noted of one would be counted into another, if ids begin anew."""
    with workflow("flushed", seal=False) as flow:
        flow.each(tasks.echo.s())
        flow.add(tasks.add.s(1, 1), dedupe_key="{a}")
    # Of ours, as Django lists them: the tests after this one need the content types.
    names = connection.introspection.django_table_names(only_existing=True)
    ours = [name for name in names if name.startswith("pgjobs_")]
    with connection.cursor() as cursor:
        for statement in connection.ops.sql_flush(no_style(), ours, allow_cascade=False):
            cursor.execute(statement)
        for table in ("", "_edge", "_change", "_key", "_page"):
            cursor.execute(f"SELECT count(*) FROM pgjobs_batch{table}")
            assert cursor.fetchone() == (0,), table


@pytest.mark.django_db
def test_what_belongs_to_a_batch_goes_with_it() -> None:
    with workflow("gone", seal=False) as flow:
        flow.each(tasks.echo.s())
        flow.add(tasks.add.s(1, 1), dedupe_key="{a}")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_batch WHERE id = %s", [flow.pk])
        for table in ("_edge", "_change", "_key", "_page"):
            cursor.execute(f"SELECT count(*) FROM pgjobs_batch{table}")
            assert cursor.fetchone() == (0,), table
    assert not Batch.objects.exists()
