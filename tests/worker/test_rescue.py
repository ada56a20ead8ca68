"""rescue_jobs.sql: the jobs of lost workers come back, and those that kill workers end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs.queries import jobs, workers
from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.queries.jobs import MAX_ERRORS, Rescued
from django_pgjobs.worker.running.calling import make_attempt
from tests.factories import (
    count_jobs,
    get_job,
    get_worker,
    make_job,
    make_jobs,
    make_running_job,
    make_worker,
)
from tests.worker.support import claim, ids, make_options

pytestmark = pytest.mark.django_db(transaction=True)


def rescue(own: OwnConnection, max_jobs: int = 1_000) -> list[Rescued]:
    """Rescue one page."""
    with own.cursor() as cursor:
        return jobs.rescue_jobs(cursor, max_jobs=max_jobs, default_max_losses=3)


def lost_worker(**columns: Any) -> int:
    """Insert a worker whose lease is over."""
    return make_worker(lease_seconds=-1, **columns)


def delays_by_losses() -> dict[int, list[Any]]:
    """Return lost_count -> in how many seconds those jobs are due (None: at once)."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT lost_count, EXTRACT(EPOCH FROM due_at - clock_timestamp())::float8"
            " FROM pgjobs_job ORDER BY id"
        )
        rows = cursor.fetchall()
    return {count: [delay for c, delay in rows if c == count] for count, _ in rows}


@pytest.mark.parametrize(
    "make_holder",
    [
        lost_worker,
        lambda: lost_worker(ended_at=sql.SQL("now()"), lost=True),
        lambda: make_worker(ended_at=sql.SQL("now()")),
        lambda: 987_654,
    ],
    ids=["its lease ran out", "somebody closed its row", "it said goodbye", "its row is gone"],
)
def test_the_jobs_of_a_worker_that_is_gone_come_back_at_once(
    own: OwnConnection, make_holder: Callable[[], int]
) -> None:
    """S1.12, S2.20, S3.6, S4.24."""
    job = make_running_job(make_holder(), attempts=1, max_attempts=3)
    [rescued] = rescue(own)
    assert (rescued.id, rescued.status, rescued.attempts) == (job.id, "ready", 1)
    stored = get_job(job.id)
    assert (stored.worker_id, stored.lost_count, stored.attempts) == (None, 1, 1)
    assert ids(claim(own, make_worker())) == [job.id]


def test_a_live_worker_keeps_its_jobs_however_long_they_run(own: OwnConnection) -> None:
    """S2.7: rescue goes by the lease, never by age."""
    job = make_running_job(
        started_at=sql.SQL("now() - interval '30 days'"),
        last_attempted_at=sql.SQL("now() - interval '30 days'"),
    )
    assert rescue(own) == []
    assert get_job(job.id).status == "running"


def test_jobs_that_do_not_run_are_left_alone(own: OwnConnection) -> None:
    gone = lost_worker()
    waiting = make_job(worker_id=gone)
    finished = make_job(worker_id=gone, status="successful")
    assert rescue(own) == []
    assert [get_job(waiting).status, get_job(finished).status] == ["ready", "successful"]


def test_the_loss_is_recorded_as_an_error_of_the_attempt(own: OwnConnection) -> None:
    """S1.2, S2.29 (8) and (10): a missing heartbeat is kept like a failure."""
    job = make_running_job(lost_worker(), attempts=2, worker_ids=["a:1", "b:2"])
    rescue(own)
    [entry] = get_job(job.id).errors
    assert entry["exception_class"] == "django_pgjobs.exceptions.WorkerLost"
    assert (entry["attempt"], entry["worker"]) == (2, "b:2")
    assert entry["started_at"] < entry["failed_at"]


@pytest.mark.parametrize("max_losses", [1, 3])
def test_a_job_that_was_lost_as_often_as_it_may_be_fails(
    own: OwnConnection, max_losses: int
) -> None:
    """S4.24: a job that kills its worker does so max_losses times and no more."""
    lost_count = max_losses - 1
    job = make_running_job(lost_worker(), lost_count=lost_count, max_losses=max_losses)
    [rescued] = rescue(own)
    assert rescued.status == "failed"
    stored = get_job(job.id)
    assert (stored.status, stored.lost_count) == ("failed", lost_count + 1)
    assert stored.errors[-1]["exception_class"].endswith(".WorkerLost")
    assert "worker lost" in stored.note
    assert stored.finished_at is not None
    assert claim(own, make_worker()) == []


@pytest.mark.parametrize(("lost_count", "status"), [(1, "ready"), (2, "failed")])
def test_a_job_without_a_limit_of_its_own_has_the_default(
    own: OwnConnection, lost_count: int, status: str
) -> None:
    """Bounded crash loops."""
    job = make_running_job(lost_worker(), lost_count=lost_count, max_losses=None)
    rescue(own)
    assert get_job(job.id).status == status


def test_a_loss_uses_up_no_attempt(own: OwnConnection) -> None:
    job = make_running_job(lost_worker(), attempts=2, max_attempts=2)
    rescue(own)
    [row] = claim(own, make_worker())
    attempt = make_attempt(row, make_options())
    assert (row.id, attempt.attempt, attempt.max_attempts) == (job.id, 3, 3)


def test_later_losses_wait_longer_and_not_all_equally_long(own: OwnConnection) -> None:
    """PostHog 71361: rescued jobs do not come back in lock-step."""
    for lost_count in (0, 1, 1, 1, 5, 5, 5, 2**31 - 1):
        make_running_job(lost_worker(), lost_count=lost_count, max_losses=2**31 - 1)
    rescue(own)
    delays = delays_by_losses()
    assert delays[1] == [None]
    assert all(0 <= delay <= 2 for delay in delays[2])
    assert all(15 <= delay <= 32 for delay in delays[6])
    assert all(145 <= delay <= 300 for delay in delays[2**31 - 1])
    assert len(set(delays[2])) == len(set(delays[6])) == 3


@pytest.mark.parametrize("max_losses", [2, 3, None])
def test_the_last_loss_together_with_others_puts_the_jobs_off_apart_from_each_other(
    own: OwnConnection, max_losses: int | None
) -> None:
    """A job that kills its worker does not fail those beside it."""
    gone, lost_count = lost_worker(), (max_losses or 3) - 1
    for _ in range(3):
        make_running_job(gone, lost_count=lost_count, max_losses=max_losses)
    rescued = rescue(own)
    assert [job.status for job in rescued] == ["ready"] * 3
    [delays] = delays_by_losses().values()
    assert all(25 <= delay <= 60 for delay in delays)
    assert len(set(delays)) == 3
    stored = get_job(rescued[0].id)
    assert stored.note.startswith("worker lost together with others: ")
    assert stored.errors[-1]["message"] == stored.note
    assert (stored.finished_at, stored.lost_count) == (None, lost_count + 1)


def test_after_that_a_job_that_is_lost_alone_fails(own: OwnConnection) -> None:
    """It killed its worker; the one that was lost with it before runs on."""
    alone = make_running_job(lost_worker(), lost_count=3, max_losses=3)
    beside = make_running_job(lost_count=3, max_losses=3)
    rescue(own)
    assert (get_job(alone.id).status, get_job(beside.id).status) == ("failed", "running")
    assert get_job(alone.id).note.startswith("worker lost: ")


def test_jobs_of_different_workers_and_of_none_are_not_lost_together(own: OwnConnection) -> None:
    for worker in (lost_worker(), lost_worker(), None, None):
        make_job(status="running", claim=1, worker_id=worker, lost_count=2)
    assert [job.status for job in rescue(own)] == ["failed"] * 4


def test_at_most_once_holds_for_jobs_that_were_lost_together(own: OwnConnection) -> None:
    """Another attempt is no way to find out which one it was."""
    gone = lost_worker()
    once = [make_running_job(gone, max_losses=1).id for _ in range(2)]
    more = make_running_job(gone)
    rescue(own)
    assert [get_job(job).status for job in (*once, more.id)] == ["failed", "failed", "ready"]


@pytest.mark.parametrize(
    ("lost_count", "max_losses", "status"),
    [
        (4, 2, "ready"),
        (5, 2, "failed"),
        (7, 3, "ready"),
        (8, 3, "failed"),
        (7, None, "ready"),
        (8, None, "failed"),
        (2**31 - 1, 2, "failed"),
        (2**31 - 1, 2**31 - 1, "ready"),
    ],
)
def test_a_job_that_is_always_lost_with_others_fails_at_three_times_as_many_losses(
    own: OwnConnection, lost_count: int, max_losses: int | None, status: str
) -> None:
    """There is a bound for it, too."""
    gone = lost_worker()
    job = make_running_job(gone, lost_count=lost_count, max_losses=max_losses)
    beside = make_running_job(gone)
    rescue(own)
    assert (get_job(job.id).status, get_job(beside.id).status) == (status, "ready")


def test_the_first_loss_together_with_others_returns_the_jobs_soon_and_not_all_at_once(
    own: OwnConnection,
) -> None:
    gone = lost_worker()
    for _ in range(20):
        make_running_job(gone)
    rescue(own)
    [delays] = delays_by_losses().values()
    assert all(delay <= 5 for delay in delays)
    assert max(delays) - min(delays) > 1


def test_a_job_that_somebody_asked_to_cancel_ends(own: OwnConnection) -> None:
    job = make_running_job(lost_worker(), cancel_requested_at=sql.SQL("now()"))
    rescue(own)
    stored = get_job(job.id)
    assert stored.status == "cancelled"
    assert stored.finished_at is not None


def test_late_writes_of_the_lost_worker_miss(own: OwnConnection) -> None:
    """Fencing."""
    job = make_running_job(lost_worker())
    rescue(own)
    late = [jobs.Success(job.id, job.claim, "[1]", 0.0, 0.0)]
    [rows] = own.round_trip([lambda cursor: jobs.send_successes(cursor, late)])
    assert rows == []
    assert (get_job(job.id).status, get_job(job.id).result) == ("ready", None)
    assert get_job(job.id).claim == job.claim + 1


def test_errors_stay_capped(own: OwnConnection) -> None:
    old = [{"message": f"old {number}"} for number in range(MAX_ERRORS)]
    job = make_running_job(lost_worker(), errors=old)
    rescue(own)
    stored = get_job(job.id).errors
    assert len(stored) == MAX_ERRORS
    assert stored[0]["message"] == "old 0"


def test_a_page_takes_as_many_as_asked_over_all_lost_workers(own: OwnConnection) -> None:
    for _ in range(3):
        gone = lost_worker()
        for _ in range(4):
            make_running_job(gone)
    assert [len(rescue(own, 5)) for _ in range(4)] == [5, 5, 2, 0]


def test_a_page_of_live_jobs_does_not_hide_lost_ones(own: OwnConnection) -> None:
    """River 1318: 10,001 running rows."""
    make_jobs(10_000, status="running", worker_id=make_worker(), claim=1)
    job = make_running_job(lost_worker())
    assert [rescued.id for rescued in rescue(own)] == [job.id]


def test_two_rescuers_at_once_share_the_jobs(open_own: Callable[[], OwnConnection]) -> None:
    """S2.34."""
    gone = lost_worker()
    running = [make_running_job(gone).id for _ in range(6)]
    first, second = open_own(), open_own()
    first.open().execute("BEGIN")
    mine = sorted(rescued.id for rescued in rescue(first, 4))
    yours = sorted(rescued.id for rescued in rescue(second))
    first.open().execute("COMMIT")
    assert (mine, yours) == (running[:4], running[4:])
    assert count_jobs(lost_count=1) == 6
    assert rescue(second) == []


def test_an_expired_lease_is_never_renewed(own: OwnConnection) -> None:
    """What is lost stays lost."""
    gone, live = lost_worker(), make_worker(lease_seconds=10)
    before = get_worker(live).lease_expires_at
    with own.cursor() as cursor:
        assert workers.renew_lease(cursor, gone, lease=60) is None
        assert workers.renew_lease(cursor, live, lease=60) is not None
    assert get_worker(live).lease_expires_at > before


@pytest.mark.parametrize("ended", [True, False])
def test_a_worker_that_ended_or_has_no_row_is_not_renewed(own: OwnConnection, ended: bool) -> None:
    worker = make_worker(ended_at=sql.SQL("now()")) if ended else 987_654
    with own.cursor() as cursor:
        assert workers.renew_lease(cursor, worker, lease=60) is None


def test_the_row_of_a_lost_worker_is_closed_and_says_so(own: OwnConnection) -> None:
    gone, live = lost_worker(listening=True), make_worker(listening=True)
    with own.cursor() as cursor:
        assert workers.end_lost_workers(cursor) == [(gone, "test:1")]
        assert workers.end_lost_workers(cursor) == []
    closed = get_worker(gone)
    assert (closed.lost, closed.listening) == (True, False)
    assert closed.ended_at is not None
    assert (get_worker(live).lost, get_worker(live).listening) == (False, True)


def test_the_oldest_live_worker_leads_and_each_knows_when_another_lease_ends(
    own: OwnConnection,
) -> None:
    lost_worker(ended_at=sql.SQL("now()"))
    oldest, other = make_worker(lease_seconds=20), make_worker(lease_seconds=40)
    with own.cursor() as cursor:
        first = workers.renew_lease(cursor, oldest, lease=100)
        second = workers.renew_lease(cursor, other, lease=100)
    assert first is not None and second is not None
    assert (first.is_leader, second.is_leader) == (True, False)
    assert first.next_expiry == pytest.approx(40, abs=15)
    assert second.next_expiry == pytest.approx(100, abs=15)
