"""promote_due_jobs.sql: scheduled and retrying jobs become claimable when their time comes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from psycopg import sql

from django_pgjobs.queries import jobs
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import get_job, make_job, make_jobs, make_worker
from tests.worker.support import claim, ids

pytestmark = pytest.mark.django_db(transaction=True)

PAST = sql.SQL("clock_timestamp() - interval '1 minute'")
FUTURE = sql.SQL("clock_timestamp() + interval '1 minute'")


def promote(connection: OwnConnection, max_jobs: int = 100) -> tuple[int, float | None]:
    """Promote, and return (jobs promoted, seconds to the next one)."""
    [[(promoted, next_due, _)]] = connection.round_trip(
        [partial(jobs.send_promotion, max_jobs=max_jobs)]
    )
    return promoted, next_due


def test_a_job_whose_time_has_come_can_be_claimed(own: OwnConnection) -> None:
    """S1.22, S2.26, S2.32."""
    job_id = make_job(due_at=PAST)
    assert claim(own, make_worker()) == []
    assert promote(own) == (1, None)
    assert ids(claim(own, make_worker())) == [job_id]


def test_a_job_of_the_future_stays_and_its_time_is_told(own: OwnConnection) -> None:
    job_id = make_job(run_after=FUTURE)
    make_job(run_after=sql.SQL("clock_timestamp() + interval '1 hour'"))
    promoted, next_due = promote(own)
    assert promoted == 0
    assert next_due == pytest.approx(60, abs=20)
    assert get_job(job_id).due_at is not None


def test_a_refusal_of_before_is_forgotten_when_the_job_is_promoted(own: OwnConnection) -> None:
    refused = make_job(due_at=PAST, note="passed over: no room")
    retried = make_job(due_at=PAST, note="retry after Mishap")
    assert promote(own) == (2, None)
    assert [get_job(refused).note, get_job(retried).note] == ["", "retry after Mishap"]


def test_nothing_to_promote_is_no_row_of_zeros_and_no_time(own: OwnConnection) -> None:
    make_job()
    assert promote(own) == (0, None)


def test_a_page_promotes_what_has_been_due_longest(own: OwnConnection) -> None:
    late = make_jobs(2, due_at=PAST)
    latest = make_jobs(2, due_at=sql.SQL("now() - interval '1 hour'"))
    assert promote(own, 2) == (2, None)
    assert {get_job(job).due_at for job in latest} == {None}
    assert None not in {get_job(job).due_at for job in late}
    assert promote(own, 100)[0] == 2


def test_promoted_jobs_are_claimed_by_priority_and_not_by_time(own: OwnConnection) -> None:
    first_due = make_job(due_at=sql.SQL("now() - interval '1 hour'"))
    urgent = make_job(due_at=PAST, priority=1)
    promote(own)
    assert ids(claim(own, make_worker())) == [urgent, first_due]


def test_two_workers_that_promote_at_once_pass_over_the_rows_of_each_other(
    open_own: Callable[[], OwnConnection],
) -> None:
    make_jobs(4, due_at=PAST)
    first, second = open_own(), open_own()
    first.open().execute("BEGIN")
    assert promote(first, 2)[0] == 2
    assert promote(second, 100)[0] == 2
    first.open().execute("COMMIT")
    assert promote(second) == (0, None)
