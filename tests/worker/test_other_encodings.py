"""A database in an encoding that lacks most characters: Django wants UTF8, and does not ask."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.management import call_command
from django.db import DataError, NotSupportedError
from django.test import override_settings

from django_pgjobs import task
from django_pgjobs.models import Job
from tests import tasks
from tests.aliases import JobsTo, extra_database
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)


@task(max_attempts=2, backoff=[0])
def fail_in_euros(price: int) -> None:
    """Fail with a text that few encodings have."""
    raise ValueError(f"no {price} €")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_job_is_tried_again_whatever_its_error_says(
    encoding: str, drain: Callable[..., ThreadedWorker]
) -> None:
    with extra_database("old", encoding=encoding) as alias:
        call_command("migrate", "pgjobs", database=alias, verbosity=0)
        with override_settings(DATABASE_ROUTERS=[JobsTo(alias)]):
            fail_in_euros.enqueue(5)
            tasks.add.enqueue(1, 2)
            with pytest.raises((DataError, NotSupportedError)):  # the latter up to PostgreSQL 15
                tasks.record.enqueue("€")
            drain(database=alias)
            failed, added = Job.objects.order_by("id")
    assert added.result == 3
    assert failed.status == "failed"
    assert [error["message"] for error in failed.errors] == ["no 5 \\u20ac"] * 2
