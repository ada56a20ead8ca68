"""claim_jobs.sql: which jobs a worker gets, in which order, and what the claim writes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from django_pgjobs.queries.claims import Floor, Lane
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import get_job, make_job, make_jobs, make_worker
from tests.worker.support import DEFAULT, ODD_NAMES, claim, ids

pytestmark = pytest.mark.django_db(transaction=True)

OpenOwn = Callable[[], OwnConnection]
MAIL = Lane("default", "mail")


def test_higher_priorities_come_first_and_older_jobs_before_newer(own: OwnConnection) -> None:
    """S3.6, S4.10, S4.19, S5.15."""
    normal = make_jobs(2)
    urgent = make_jobs(2, priority=100)
    idle = make_jobs(2, priority=-100)
    assert ids(claim(own, make_worker())) == [*urgent, *normal, *idle]


def test_a_claim_takes_the_best_and_leaves_the_rest(own: OwnConnection) -> None:
    low, high = make_jobs(3, priority=1), make_jobs(3, priority=2)
    worker = make_worker()
    assert ids(claim(own, worker, 4)) == [*high, low[0]]
    assert ids(claim(own, worker, 4)) == low[1:]
    assert claim(own, worker, 4) == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_any_name_of_a_queue_or_a_task_is_itself(own: OwnConnection, name: str) -> None:
    worker, lane = make_worker(), Lane("default", name)
    job = make_job("tests.tasks.add", queue_name=name)
    make_job(name, queue_name=name)
    make_job("tests.tasks.add")
    [row] = claim(own, worker, lanes=[MAIL, lane], passed_over_paths=["other", name])
    assert (row.id, row.queue_name) == (job, name)


@pytest.mark.parametrize("max_jobs", [1, 7, 20])
def test_a_claim_takes_exactly_as_many_as_asked_over_all_lanes(
    own: OwnConnection, max_jobs: int
) -> None:
    """S4.20."""
    lanes = [Lane("default", f"q{number}") for number in range(4)]
    for lane in lanes:
        make_jobs(5, queue_name=lane.queue_name)
    assert len(claim(own, make_worker(), max_jobs, lanes=lanes)) == max_jobs


def test_the_best_jobs_of_all_lanes_come_first_whatever_their_queue(own: OwnConnection) -> None:
    """S4.2."""
    slow = make_jobs(3, priority=0)
    urgent = make_jobs(2, queue_name="mail", priority=5)
    rows = claim(own, make_worker(), 3, lanes=[DEFAULT, MAIL])
    assert ids(rows) == [*urgent, slow[0]]


def test_only_the_lanes_that_were_asked_for_are_claimed_from(own: OwnConnection) -> None:
    mine = make_job(queue_name="mail")
    make_job()
    assert ids(claim(own, make_worker(), lanes=[MAIL])) == [mine]
    assert claim(own, make_worker(), lanes=[]) == []


def test_backend_aliases_are_not_mixed(own: OwnConnection) -> None:
    make_job(backend="other")
    mine = make_job(backend="default")
    assert ids(claim(own, make_worker(), lanes=[DEFAULT])) == [mine]


def test_a_lane_is_read_from_its_floor_on_and_the_floor_is_included(own: OwnConnection) -> None:
    urgent = make_job(priority=10)
    first, second, third = make_jobs(3)
    worker = make_worker()
    rows = claim(own, worker, 2, floors={DEFAULT: Floor(0, second)})
    assert ids(rows) == [second, third]
    assert ids(claim(own, worker, 9)) == [urgent, first]


def test_the_floor_of_one_lane_does_not_hide_jobs_of_another(own: OwnConnection) -> None:
    mail = make_job(queue_name="mail")
    passed, waiting = make_jobs(2)
    rows = claim(own, make_worker(), lanes=[MAIL], floors={DEFAULT: Floor(0, waiting)})
    assert ids(rows) == [mail, waiting]
    assert get_job(passed).status == "ready"


@pytest.mark.parametrize(
    "worker",
    [
        {"lease_seconds": -1.0},
        {"ended_at": sql.SQL("now()")},
        None,
    ],
    ids=["its lease is over", "it said goodbye", "it has no row"],
)
def test_a_worker_without_a_lease_claims_nothing(
    own: OwnConnection, worker: dict[str, Any] | None
) -> None:
    """S3.5: who may have lost its jobs takes no new ones."""
    make_job()
    worker_id = make_worker(**worker) if worker is not None else 987_654
    assert claim(own, worker_id) == []


def test_only_jobs_without_a_due_time_are_claimed(own: OwnConnection) -> None:
    """S1.22, S4.18: the look decides that a time has come, by the server's clock."""
    make_job(run_after=sql.SQL("now() + interval '1 hour'"))
    make_job(due_at=sql.SQL("now() - interval '1 hour'"))
    past = make_job(run_after=sql.SQL("now() - interval '1 hour'"))
    assert ids(claim(own, make_worker())) == [past]


@pytest.mark.parametrize("status", ["running", "successful", "failed", "cancelled"])
def test_jobs_of_other_statuses_are_not_claimed(own: OwnConnection, status: str) -> None:
    """S2.29."""
    make_job(status=status)
    assert claim(own, make_worker()) == []


def test_two_connections_that_claim_at_once_both_get_full_and_disjoint_batches(
    open_own: OpenOwn,
) -> None:
    """S1.19, S2.4, S2.18, S5.13: SKIP LOCKED, and the second does not come back short."""
    jobs = make_jobs(20)
    first, second = open_own(), open_own()
    first.open().execute("BEGIN")
    mine = ids(claim(first, make_worker(), 10))
    yours = ids(claim(second, make_worker(), 10))
    first.open().execute("COMMIT")
    assert mine == jobs[:10]
    assert yours == jobs[10:]
    assert {get_job(job).attempts for job in jobs} == {1}


def test_a_row_that_a_third_transaction_holds_is_passed_over(
    own: OwnConnection, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """S4.20."""
    head, second, third = make_jobs(3)
    holder = open_connection(autocommit=False)
    holder.execute("SELECT id FROM pgjobs_job WHERE id = %s FOR UPDATE", [head])
    worker = make_worker()
    assert ids(claim(own, worker, 2)) == [second, third]
    holder.rollback()
    assert ids(claim(own, worker, 2)) == [head]


def test_a_claim_that_is_rolled_back_leaves_the_jobs_ready(own: OwnConnection) -> None:
    job_id = make_job()
    own.open().execute("BEGIN")
    claim(own, make_worker())
    own.open().execute("ROLLBACK")
    job = get_job(job_id)
    assert (job.status, job.claim, job.attempts, job.worker_ids) == ("ready", 0, 0, [])


def test_a_claim_writes_who_runs_the_job_and_counts_the_attempt(own: OwnConnection) -> None:
    """S3.2: the attempt counts from the claim on, so a crash cannot hide it."""
    job_id, worker = make_job(note="retry after Mishap"), make_worker()
    [row] = claim(own, worker)
    job = get_job(job_id)
    assert (job.status, job.claim, job.attempts) == ("running", row.claim, 1)
    assert (job.worker_id, job.worker_ids, job.note) == (worker, ["test:1"], "")
    assert job.started_at == job.last_attempted_at >= job.enqueued_at
    assert (row.id, row.attempts) == (job_id, 1)
    assert 1 <= row.claim <= 2**31


def test_the_next_attempt_keeps_the_begin_of_the_first(own: OwnConnection) -> None:
    begin = sql.SQL("now() - interval '1 hour'")
    job_id = make_job(attempts=1, claim=2, started_at=begin, worker_ids=["old:1"])
    [row] = claim(own, make_worker())
    job = get_job(job_id)
    assert (row.attempts, job.worker_ids) == (2, ["old:1", "test:1"])
    assert row.claim > 2
    assert job.last_attempted_at - job.started_at >= timedelta(minutes=59)


def test_a_claim_returns_arguments_as_the_text_that_was_stored(own: OwnConnection) -> None:
    """One row that cannot be decoded does not stop the claim."""
    digits = "9" * 5_000
    make_job("x.y", args=sql.SQL('\'[1e16, {"b": 1,  "a": 2}]\''))
    make_job("x.y", args=sql.SQL(f"'[{digits}]'"))
    first, second = claim(own, make_worker())
    assert first.args == '[1e16, {"b": 1,  "a": 2}]'
    assert second.args == f"[{digits}]"


def test_a_row_at_the_limits_of_its_columns_does_not_block_the_lane(own: OwnConnection) -> None:
    poison = make_job(attempts=2**31 - 1, priority=100)
    job_id = make_job(priority=-100)
    assert ids(claim(own, make_worker())) == [poison, job_id]


def test_a_claim_tells_how_long_the_job_could_have_run_already(own: OwnConnection) -> None:
    make_job(enqueued_at=sql.SQL("now() - interval '1 hour'"))
    make_job(
        enqueued_at=sql.SQL("now() - interval '1 hour'"),
        run_after=sql.SQL("now() - interval '1 minute'"),
    )
    waited = [row.waited for row in claim(own, make_worker())]
    assert waited == [pytest.approx(3600, abs=30), pytest.approx(60, abs=30)]


def test_the_whole_row_comes_only_where_it_is_wanted(own: OwnConnection) -> None:
    make_job("x.plain")
    make_job("x.wanted", correlation_id="c")
    plain, wanted = claim(own, make_worker(), detailed_paths=["x.wanted"])
    assert plain.detail is None
    assert '"metadata" : "{}"' in str(wanted.detail)
    assert (plain.correlation_id, wanted.correlation_id) == ("", "c")
    make_job("x.plain")
    [row] = claim(own, make_worker(), detailed=True)
    assert row.detail is not None
