"""A row that the server refuses to change, for whatever reason, is passed over.

Here it is a trigger of the project that raises; a CHECK, a value out of range or a corrupt page
come to the same. Everything else is done: the statements that take many rows at once find the one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from django_pgjobs.queries.connection import OwnConnection
from django_pgjobs.worker.process.pruner import Pruner
from django_pgjobs.worker.turns import refusals
from tests import tasks
from tests.factories import (
    count_jobs,
    get_job,
    get_worker,
    make_job,
    make_jobs,
    make_running_job,
    make_worker,
)
from tests.helpers import wait_until
from tests.proxy import TcpProxy
from tests.test_dependencies import FREE, WAITING, enqueue_after, state
from tests.worker import tasks as gate_tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker, counted_round_trips, make_options

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

Start = Callable[..., ThreadedWorker]
Refuse = Callable[..., None]
ADD, ECHO = "tests.tasks.add", "tests.tasks.echo"

# A program limit, a number out of range, a CHECK, RAISE, a missing privilege, a corrupt page; and
# codes of lost sessions and servers, which a function may say as well.
CODES = ("54000", "22003", "23514", "P0001", "42501", "XX001", "0A000", "25006", "53100", "57P01")
TRIGGER = """
CREATE OR REPLACE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF {condition} THEN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END IF;
    RETURN COALESCE(NEW, OLD);
END
$body$;
CREATE TRIGGER refuse_row BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION refuse_row();
"""
READ_FILE = """
CREATE OR REPLACE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF NEW.id = {job_id} THEN PERFORM pg_read_file('/nonexistent'); END IF;
    RETURN NEW;
END
$body$;
CREATE TRIGGER refuse_row BEFORE INSERT OR UPDATE ON {table}
    FOR EACH ROW EXECUTE FUNCTION refuse_row();
"""
REFUSE_LATE = """
CREATE OR REPLACE FUNCTION refuse_row() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    IF NEW.id = {job_id} THEN RAISE EXCEPTION 'refused late'; END IF;
    RETURN NULL;
END
$body$;
CREATE CONSTRAINT TRIGGER refuse_row AFTER INSERT ON pgjobs_job_finished
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse_row();
"""


@pytest.fixture
def refuse(transactional_db: None) -> Iterator[Refuse]:
    """Let the server refuse to change rows: `refuse(condition, code=..., event=..., table=...)`."""

    def make(
        condition: str,
        code: str = "P0001",
        event: str = "UPDATE",
        table: str = "pgjobs_job_live",
    ) -> None:
        text = TRIGGER.format(condition=condition, code=code, event=event, table=table)
        with connection.cursor() as cursor:
            cursor.execute(text)

    yield make
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION refuse_row() CASCADE")


def starts(*job_ids: int) -> str:
    """Return the condition that one of these jobs is claimed."""
    return f"NEW.status = 'running' AND OLD.id IN ({', '.join(map(str, job_ids))})"


@pytest.mark.parametrize("code", CODES)
def test_a_job_that_cannot_be_claimed_stops_no_other(
    start_thread: Start, refuse: Refuse, caplog: pytest.LogCaptureFixture, code: str
) -> None:
    jobs = make_jobs(30, ADD)
    refused = {jobs[0], jobs[7], jobs[8], jobs[29]}
    refuse(starts(*refused), code)
    worker = start_thread()
    wait_until(lambda: count_jobs(status="successful") == 26)
    for job_id in refused:
        row = get_job(job_id)
        assert (row.status, row.attempts) == ("ready", 0)
        assert row.note.startswith("passed over: refused")
        said = [record for record in caplog.records if f"job={job_id} " in record.getMessage()]
        assert [record.levelno for record in said] == [logging.ERROR]
    assert worker.is_running


def test_jobs_of_a_task_that_can_never_be_claimed_do_not_hold_up_the_others(
    start_thread: Start, refuse: Refuse
) -> None:
    """After some of them all are left alone, or each would cost two round trips."""
    make_jobs(300, ECHO, priority=5)
    behind = make_jobs(20, ADD)
    refuse(f"OLD.task_path = '{ECHO}'")
    with counted_round_trips() as counts:
        start_thread()
        wait_until(lambda: count_jobs(status="successful") == len(behind))
    assert len(counts["pump"]) < 300
    assert count_jobs(task_path=ECHO, status="ready") == 300


def test_jobs_of_a_task_come_up_behind_many_that_are_refused(
    start_thread: Start, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each pause of the task some more are met, and not the same ones again."""
    monkeypatch.setattr(refusals, "TASK_SECONDS", 0.2)
    jobs = make_jobs(35, ADD)
    refuse(starts(*jobs[:25]))
    start_thread(poll_interval=0.1)
    wait_until(lambda: count_jobs(status="successful") == 10)
    assert {get_job(job_id).status for job_id in jobs[:25]} == {"ready"}


def test_a_job_that_was_refused_is_tried_again(
    start_thread: Start, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "JOB_SECONDS", (0.5, 1.0))
    monkeypatch.setattr(refusals, "TASK_SECONDS", 0.2)
    jobs = make_jobs(12, ADD)
    refuse(starts(*jobs))
    start_thread(poll_interval=0.1)
    wait_until(lambda: get_job(jobs[-1]).note)
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER refuse_row ON pgjobs_job_live")
    wait_until(lambda: count_jobs(status="successful") == 12)


def test_what_a_worker_knows_of_refused_jobs_is_bounded(
    own: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "MOST_KNOWN", 20)
    known = refusals.Refusals()

    def take(size: int, passed_over: list[int]) -> list[int]:
        if 30 not in passed_over:
            raise psycopg.errors.RaiseException("refused")
        return []

    def find(passed_over: list[int]) -> dict[int, str]:
        job_id = len(passed_over) + 1
        return {job_id: f"task {job_id}"}

    assert list(known.in_pages(own, take, size=1, find=find)) == [[]]
    assert known.passed_over() == [*range(11, 31)]


def test_a_job_is_told_of_once_and_again_after_a_long_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusals, "MOST_KNOWN", 3)
    told = refusals.LoggedJobs()
    assert [told.is_new(job_id) for job_id in (1, 2, 1, 3, 2)] == [True, True, False, True, False]
    # One more than are known: the one that was not met for longest is forgotten.
    assert [told.is_new(job_id) for job_id in (4, 3, 2, 1)] == [True, False, False, True]
    monkeypatch.setattr(refusals, "FORGET_SECONDS", -1.0)
    assert told.is_new(2)


def test_jobs_with_keys_that_cannot_be_claimed_stop_no_other(
    start_thread: Start, refuse: Refuse
) -> None:
    jobs = [make_job(ADD, concurrency_key=f"key {number % 7}") for number in range(21)]
    make_jobs(5, ADD)
    # The second of its key: it waits in its place, and so does the third.
    refuse(starts(jobs[8]))
    start_thread(poll_interval=0.1)
    wait_until(lambda: count_jobs(status="successful") == 24)
    assert [get_job(jobs[n]).status for n in (1, 8, 15)] == ["successful", "ready", "ready"]


def test_jobs_with_rate_limits_that_cannot_be_claimed_cost_no_tokens(
    start_thread: Start, refuse: Refuse
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_rate_limit (name, count, period, burst) VALUES ('x', 6, 3600, 6)"
        )
    jobs = make_jobs(6, ADD, rate_limit_keys="x", rate_cost=1)
    refuse(starts(jobs[2]))
    start_thread(poll_interval=0.1)
    wait_until(lambda: count_jobs(status="successful") == 5)


def test_a_drain_ends_beside_a_job_that_cannot_be_claimed(drain: Start, refuse: Refuse) -> None:
    jobs = make_jobs(10, ADD)
    refuse(starts(jobs[4]))
    drain()
    assert count_jobs(status="successful") == 9


def test_jobs_of_both_kinds_go_on_beside_refused_ones(drain: Start, refuse: Refuse) -> None:
    jobs = make_jobs(9, "tests.tasks.add_async", args=[1, 2], is_async=True)
    jobs += make_jobs(9, ADD, args=[1, 2])
    refuse(starts(*jobs[::5]))
    drain(concurrency=1)
    assert count_jobs(status="successful") == 14


@pytest.mark.parametrize("table", ["pgjobs_job_live", "pgjobs_job_finished"])
def test_an_error_in_a_trigger_is_about_the_row_whatever_its_code_says(
    start_thread: Start, refuse: Refuse, table: str
) -> None:
    """Here a file that is missing; it might be another server that cannot be reached."""
    [job_id, *others] = make_jobs(6, ADD)
    with connection.cursor() as cursor:
        cursor.execute(READ_FILE.format(table=table, job_id=job_id))
    start_thread()
    wait_until(lambda: count_jobs(status="successful") == len(others))
    assert get_job(job_id).status != "successful"


def test_what_fails_at_the_commit_is_found(start_thread: Start, refuse: Refuse) -> None:
    """A deferred constraint or trigger has no statement that it could belong to."""
    [job_id, *others] = make_jobs(6, ADD)
    with connection.cursor() as cursor:
        cursor.execute(REFUSE_LATE.format(job_id=job_id))
    start_thread()
    wait_until(lambda: count_jobs(status="successful") == len(others))
    assert get_job(job_id).status == "running"


def test_a_worker_beside_a_job_that_cannot_be_claimed_becomes_idle(
    start_thread: Start, refuse: Refuse
) -> None:
    [job_id] = make_jobs(1, ADD)
    refuse(starts(job_id))
    with counted_round_trips() as counts:
        worker = start_thread(poll_interval=NEVER)
        wait_until(lambda: get_worker(worker.id).listening)
        job = tasks.add.enqueue(1, 2)
        wait_until(lambda: get_job(job.id).status == "successful")
        wait_until(lambda: get_worker(worker.id).listening)
    assert len(counts["pump"]) < 200


def test_a_job_that_cannot_be_promoted_stops_neither_the_others_nor_the_claim(
    start_thread: Start, refuse: Refuse
) -> None:
    due = make_jobs(30, ADD, due_at=sql.SQL("now() - interval '1 s'"))
    refuse(f"OLD.id IN ({due[0]}, {due[13]})")
    make_jobs(5, ADD)
    start_thread()
    wait_until(lambda: count_jobs(status="successful") == 33)
    assert {get_job(due[0]).status, get_job(due[13]).status} == {"ready"}


def test_a_lost_job_that_cannot_be_rescued_does_not_keep_the_others_lost(
    start_thread: Start, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [make_running_job(make_worker(lease_seconds=-1)) for _ in range(20)]
    refuse(f"OLD.id = {rows[3].id} AND NEW.status <> 'running'")
    start_thread(lease=3.0)
    wait_until(lambda: count_jobs(status="successful") == 19)
    assert get_job(rows[3].id).note.startswith("cannot be rescued: refused")
    said = [record for record in caplog.records if "cannot be rescued" in record.getMessage()]
    assert len(said) == 1


def test_a_job_that_cannot_be_given_back_does_not_keep_those_of_the_same_lost_claim(
    start_proxied: Start, proxy: TcpProxy, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given back when the server lets it be."""
    monkeypatch.setattr(refusals, "JOB_SECONDS", (0.1, 0.2))
    jobs = make_jobs(3, ADD)
    refuse(f"OLD.id = {jobs[0]} AND OLD.status = 'running' AND NEW.status = 'ready'")
    lost = proxy.cut_on("status = 'running',\nclaim = pg_catalog.mod(", when="after")
    start_proxied(concurrency=3)
    lost.wait()
    wait_until(lambda: count_jobs(status="successful") == 2)
    wait_until(lambda: get_job(jobs[0]).note.startswith("passed over: refused"))
    connection.cursor().execute("DROP TRIGGER refuse_row ON pgjobs_job_live")
    wait_until(lambda: count_jobs(status="successful") == 3)


@pytest.mark.parametrize("code", ["P0001", "22003"])
def test_progress_that_the_server_refuses_harms_only_itself(
    start_thread: Start, refuse: Refuse, gate: Gate, code: str
) -> None:
    start_thread()
    bad, good = gate_tasks.report_progress.enqueue(), gate_tasks.report_progress.enqueue()
    refuse(f"OLD.id = {bad.id} AND NEW.progress IS NOT NULL", code)
    gate.wait_entered(2)
    wait_until(lambda: get_job(good.id).progress)
    gate.open()
    wait_until(lambda: get_job(good.id).status == "successful")
    wait_until(lambda: get_job(bad.id).status in ("successful", "failed"))


def test_a_worker_whose_own_row_cannot_be_changed_runs_jobs(
    start_thread: Start, refuse: Refuse
) -> None:
    start_thread(poll_interval=NEVER)
    refuse("OLD.listening <> NEW.listening", table="pgjobs_worker")
    for number in range(1, 4):
        tasks.add.enqueue(1, 2)
        wait_until(lambda number=number: count_jobs(status="successful") == number)


def test_a_dependant_that_cannot_be_let_go_holds_up_no_outcome(
    start_thread: Start, refuse: Refuse
) -> None:
    first = tasks.add.enqueue(1, 2)
    waiting = enqueue_after(int(first.id))
    refuse(f"OLD.id = {waiting}")
    start_thread()
    make_jobs(10, ADD)
    wait_until(lambda: count_jobs(status="successful") >= 11)
    assert get_job(first.id).status == "successful"


@pytest.fixture
def prune(own: OwnConnection) -> Iterator[None]:
    """A pruner that prunes at once."""
    crashes: list[str] = []
    made = Pruner(make_options(retention=1.0), own, is_leader=lambda: True, on_crash=crashes.append)
    made.start()
    made.wake()
    yield
    made.stop()
    assert made.join(15)
    assert not crashes


def test_a_job_that_cannot_be_deleted_does_not_keep_the_others(
    refuse: Refuse, request: pytest.FixtureRequest
) -> None:
    old = sql.SQL("now() - interval '1 h'")
    jobs = make_jobs(30, ADD, status="successful", finished_at=old)
    refuse(f"OLD.id = {jobs[11]}", event="DELETE", table="pgjobs_job_finished")
    request.getfixturevalue("prune")
    wait_until(lambda: count_jobs() == 1)


def test_a_worker_that_cannot_be_deleted_does_not_keep_old_jobs(
    refuse: Refuse, request: pytest.FixtureRequest
) -> None:
    old = sql.SQL("now() - interval '2 days'")
    make_jobs(3, ADD, status="successful", finished_at=old)
    make_worker(ended_at=old)
    refuse("TRUE", event="DELETE", table="pgjobs_worker")
    request.getfixturevalue("prune")
    wait_until(lambda: count_jobs() == 0)


def test_the_sweep_goes_on_behind_a_dependant_that_cannot_be_changed(
    refuse: Refuse, request: pytest.FixtureRequest
) -> None:
    predecessors = [make_job() for _ in range(3)]
    waiting = [enqueue_after(job_id) for job_id in predecessors]
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_job WHERE id = ANY (%s)", [predecessors])
    refuse(f"OLD.id = {waiting[1]}")
    request.getfixturevalue("prune")
    wait_until(lambda: state(waiting[0]) == state(waiting[2]) == FREE)
    assert state(waiting[1]) == WAITING


def test_a_transaction_that_is_crossed_for_ever_does_not_keep_the_worker_busy(
    start_thread: Start, refuse: Refuse, gate: Gate
) -> None:
    """A trigger that raises a serialization failure looks like another worker that comes first."""
    start_thread()
    job = gate_tasks.wait_at_gate.enqueue()
    gate.wait_entered()
    refuse(f"OLD.id = {job.id}", "40001")
    with counted_round_trips() as counts:
        gate.open()
        make_jobs(5, ADD)
        wait_until(lambda: count_jobs(task_path=ADD, status="successful") == 5)
    assert len(counts["pump"]) < 500
