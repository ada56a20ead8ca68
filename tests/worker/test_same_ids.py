"""Two jobs with one id: a failover to a server that lacks the last commits gives ids again.

A worker may still run the first job while another one claims the second. What the first comes to is
not to be written to the second, which somebody else enqueued.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.queries import jobs
from django_pgjobs.queries.claims import ClaimedRow
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import get_job, make_job, make_worker
from tests.worker.support import claim

pytestmark = pytest.mark.django_db(transaction=True)

STEP = 2**31
HIGHEST = 9_000_000_000_000_000_000
ERROR = '{"exception_class": "builtins.ValueError", "message": "", "traceback": "", "attempt": 1}'


def success(row: ClaimedRow) -> Any:
    return partial(_sent, jobs.send_successes, jobs.Success(row.id, row.claim, '"mine"', 0.0, 0.0))


def failure(row: ClaimedRow) -> Any:
    given = {"status": "failed", "error": ERROR, "note": "", "age": 0.0, "duration": 0.0}
    return partial(_sent, jobs.send_ends, jobs.End(id=row.id, claim=row.claim, **given))


def give_back(row: ClaimedRow) -> Any:
    given = {"delay": None, "counted": True, "error": "", "note": "", "age": 0.0, "duration": 0.0}
    return partial(_sent, jobs.send_returns, jobs.Return(id=row.id, claim=row.claim, **given))


def progress(row: ClaimedRow) -> Any:
    return partial(_sent, jobs.send_progress, (row.id, row.claim, 2.5, '{"done": 1}'))


def _sent(function: Any, item: Any, cursor: Any) -> None:
    function(cursor, [item])


def begin(own: OwnConnection, **columns: Any) -> ClaimedRow:
    """Insert a job and let a new worker claim it."""
    job_id = make_job(**columns)
    [row] = claim(own, make_worker())
    assert row.id == job_id
    return row


def lose_jobs() -> None:
    """Leave the table as a standby has it that has not heard of any job."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_job")


@pytest.mark.parametrize("write", [success, failure, give_back, progress])
def test_a_late_write_does_not_meet_another_job_with_the_same_id(
    own: OwnConnection, write: Any
) -> None:
    former = begin(own)
    lose_jobs()
    row = begin(own, id=former.id)
    before = vars(get_job(row.id))
    assert own.round_trip([write(former)]) == [[]]
    assert vars(get_job(row.id)) == before
    assert own.round_trip([write(row)]) != [[]]


def test_attempts_of_such_jobs_never_meet(own: OwnConnection) -> None:
    """Each was given back once, which raises the token by one."""
    claims = []
    for number in range(4):
        row = begin(own, id=4_711)
        own.round_trip([give_back(row)])
        [again] = claim(own, make_worker())
        claims += [row.claim, again.claim]
        lose_jobs()
        assert len(set(claims)) == 2 * (number + 1)


@pytest.mark.parametrize("stored", [0, 1, 2**53, HIGHEST - 2 * STEP, HIGHEST - 1, HIGHEST])
def test_a_claim_writes_a_token_within_the_bounds(own: OwnConnection, stored: int) -> None:
    row = begin(own, claim=stored)
    assert 0 < row.claim <= HIGHEST
    assert row.claim != stored
    if stored <= 2**53:
        assert stored < row.claim <= stored + STEP
