"""Lost jobs that the server refuses to rescue."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.process import leases
from tests.factories import get_job, make_running_job, make_worker
from tests.worker.keeping import Kept

pytestmark = pytest.mark.django_db(transaction=True)

REFUSE = "ALTER TABLE pgjobs_job_live ADD CONSTRAINT kept CHECK (status = 'running') NOT VALID"
ALLOW = "ALTER TABLE pgjobs_job_live DROP CONSTRAINT kept"


def test_a_job_that_cannot_be_rescued_is_left_alone_for_a_while(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass has a third of a lease: many of them would take all of it, each time."""
    found: list[int] = []
    find = jobs.find_lost_job

    def noted(*args: Any, **kwargs: Any) -> list[int]:
        found.extend(ids := find(*args, **kwargs))
        return ids

    monkeypatch.setattr(jobs, "find_lost_job", noted)
    lost = [make_running_job(make_worker(lease_seconds=-1)).id for _ in range(3)]
    keeper = Kept(own).keeper
    with connection.cursor() as cursor:
        cursor.execute(REFUSE)
    try:
        assert keeper.rescue(own)
        assert set(found) == set(lost)
        found.clear()
        assert keeper.rescue(own)
        assert found == []
    finally:
        with connection.cursor() as cursor:
            cursor.execute(ALLOW)
    monkeypatch.setattr(leases.time, "monotonic", lambda: float("1e12"))
    keeper.rescue(own)
    assert {get_job(job_id).status for job_id in lost} == {"ready"}
