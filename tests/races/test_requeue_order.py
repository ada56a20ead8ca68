"""A requeue of jobs whose unique keys others are about to take."""

from __future__ import annotations

import pytest

from django_pgjobs.models import Job
from tests.factories import make_job
from tests.helpers import connect
from tests.races.support import DjangoThread
from tests.races.test_unique import wait_until_waiting

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.race]

TASK = "tests.tasks.add"
ENQUEUE = "INSERT INTO pgjobs_job (task_path, unique_key) VALUES (%s, %s)"


def test_a_requeue_waits_for_keys_in_their_order_as_an_enqueue_does() -> None:
    """Else each would wait for the other: the jobs are older in the opposite order."""
    failed = [
        make_job(TASK, unique_key=key, status="failed", finished_at="2020-01-01") for key in "ba"
    ]
    with connect() as other, other.transaction():
        other.execute(ENQUEUE, [TASK, "a"])
        requeuing = DjangoThread(Job.objects.filter(pk__in=failed).requeue)
        wait_until_waiting(requeuing)
        other.execute(ENQUEUE, [TASK, "b"])
    assert requeuing.result() == 0
