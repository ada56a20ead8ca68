"""How far back the passes of the pruner look."""

from __future__ import annotations

from unittest import mock

import pytest

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.process import horizon
from django_pgjobs.worker.process.horizon import EVER, PAUSE_FACTOR, SLACK_SECONDS, Horizon
from tests.factories import ago, count_jobs, make_job


def test_a_pass_over_everything_takes_a_small_part_of_the_time() -> None:
    looking = Horizon()
    with mock.patch.object(horizon.time, "monotonic") as clock:
        clock.return_value = 1_000.0
        assert looking.begin() == EVER
        clock.return_value = 1_001.0
        looking.end(0.5)
        clock.return_value = 1_060.0
        assert looking.begin() == 60.0 + SLACK_SECONDS
        looking.end(0.001)
        # One that did not come to its end counts for nothing.
        clock.return_value = 1_120.0
        looking.begin()
        clock.return_value = 1_180.0
        assert looking.begin() == 120.0 + SLACK_SECONDS
        looking.end(0.001)
        clock.return_value = 1_001.0 + 0.5 * PAUSE_FACTOR
        assert looking.begin() == EVER


@pytest.mark.django_db(transaction=True)
def test_a_pass_reads_what_became_old_since(own: OwnConnection) -> None:
    for seconds in (100, 200, 300):
        make_job(status="successful", finished_at=ago(seconds))
    with own.cursor() as cursor:
        assert jobs.prune_jobs(cursor, jobs.OldJobs("successful", 50.0, 100.0), max_jobs=10) == 1
        assert jobs.prune_jobs(cursor, jobs.OldJobs("successful", 50.0), max_jobs=10) == 2
    assert count_jobs() == 0
