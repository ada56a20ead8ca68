"""Every statement of the engine over rows with odd values: they harm nothing but themselves.

Each value of tests/odd_rows.py goes into one row, beside a healthy one. Those that are refused
today are put there while the bounds are away, as if from before them, and the bounds are back
when the statement runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from psycopg import sql

from django_pgjobs.queries import bulk, claims, dependencies, jobs
from django_pgjobs.queries.claims import ClaimedRow, Lane, ReadyPlace
from django_pgjobs.queries.cursor import fetch
from django_pgjobs.queries.filling import Control, Filling, send_fillings
from django_pgjobs.queries.sends import Question
from django_pgjobs.values.moments import logged_duration
from django_pgjobs.worker.running.calling import announce_finish, make_attempt, run_in_thread
from django_pgjobs.worker.running.job_log import log_outcome, log_start
from tests import odd_rows
from tests.factories import get_job, make_job, make_worker
from tests.helpers import execute, some_always
from tests.odd_rows import ODD, ODD_VALUES, STORABLE, Odd, Rows
from tests.worker import support
from tests.worker.keyed import keyed_claim

pytestmark = pytest.mark.django_db

ERROR = json.dumps({"exception_class": "builtins.ValueError", "message": "x", "attempt": 1})


class DjangoConnection:
    """Runs what a worker sends in the transaction of the test."""

    def round_trip(self, sends: list[Callable[[Any], object]]) -> list[list[Any]]:
        """Send and return the rows of each."""
        answers = []
        with connection.cursor() as cursor:
            for send in sends:
                send(cursor)
                answers.append(cursor.fetchall() if cursor.description else [])
                if isinstance(send, Question):
                    send.answer(answers[-1])
        return answers


def ask(send: Callable[..., object], *arguments: Any, **options: Any) -> list[Any]:
    """Send one statement and return its rows."""
    [rows] = DjangoConnection().round_trip([lambda cursor: send(cursor, *arguments, **options)])
    return rows


def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function that fetches by itself."""
    with connection.cursor() as cursor:
        return function(cursor, *arguments, **options)


def claim(rows: Rows, *, detailed: bool = True) -> dict[int, ClaimedRow]:
    """Claim all jobs without keys, wherever they are."""
    places = [ReadyPlace._make(row) for row in ask(claims.send_lane_listing)]
    lanes = [
        Lane(place.backend, place.queue_name, place.is_async)
        for place in places
        if place.urgency is None
    ]
    taken = support.claim(
        DjangoConnection(),  # type: ignore[arg-type]
        make_worker(),
        lanes=lanes,
        detailed=detailed,
    )
    found = {row.id: row for row in taken}
    assert rows.healthy in found
    return found


def claim_and_succeed(rows: Rows) -> None:
    rows.make()
    taken = claim(rows).values()
    outcomes = [jobs.Success(r.id, r.claim, "3", 0.1, 0.1) for r in taken]
    progress = [(r.id, r.claim, 0.0, '{"done": 1}') for r in taken]
    assert len(ask(jobs.send_progress, progress)) == len(outcomes)
    assert len(ask(jobs.send_successes, outcomes)) == len(outcomes)
    rows.expect("successful", "ready")


def claim_and_fail(rows: Rows) -> None:
    rows.make()
    outcomes = [
        jobs.End(
            id=r.id, claim=r.claim, status="failed", error=ERROR, note="", age=0.1, duration=0.1
        )
        for r in claim(rows).values()
    ]
    assert len(ask(jobs.send_ends, outcomes)) == len(outcomes)
    rows.expect("failed", "ready")
    assert isinstance(get_job(rows.healthy).errors, list)


def claim_and_give_back(rows: Rows) -> None:
    rows.make()
    for counted, error in ((True, ERROR), (False, ""), (True, "")):
        outcomes = [
            jobs.Return(
                id=r.id,
                claim=r.claim,
                delay=None,
                counted=counted,
                error=error,
                note="",
                age=0.1,
                duration=0.1,
            )
            for r in claim(rows).values()
        ]
        assert len(ask(jobs.send_returns, outcomes)) == len(outcomes)
        rows.expect("ready", "cancelled")


def claim_and_fill_in(rows: Rows) -> None:
    rows.make()
    for until_claimed in (True, False):
        execute("UPDATE pgjobs_job SET is_declared = FALSE")
        control = Control("default", 1, "key", None, False, "limit", 1, None, until_claimed)
        fillings = [
            Filling(row.id, row.claim, control, row.is_async) for row in claim(rows).values()
        ]
        assert len(ask(send_fillings, fillings)) == len(fillings)
        rows.expect("ready", "cancelled")
        execute("UPDATE pgjobs_job SET concurrency_key = NULL, rate_limit_keys = NULL")


def claim_by_keys_and_succeed(rows: Rows) -> None:
    execute("INSERT INTO pgjobs_rate_limit (name, count, period) VALUES ('limit', 1000, 1)")
    execute(
        "INSERT INTO pgjobs_rate_state (key, next_free, taken_at, taken_since) VALUES"
        " ('limit', '-infinity', '{-infinity,NULL}', '{2147483647,1,5,-2147483648,NULL}'),"
        " ('limit:', 'infinity', '{{infinity,NULL},{-infinity,now}}', '{}')"
    )
    rows.make(concurrency_key="key", concurrency_limit=5, skips_waiting=True)
    for _ in range(2):
        taken = keyed_claim(DjangoConnection(), make_worker())  # type: ignore[arg-type]
        ask(jobs.send_successes, [jobs.Success(r.id, r.claim, "3", 0.1, 0.1) for r in taken])
    rows.expect("successful", "ready")


def rescue(rows: Rows) -> None:
    worker_id = make_worker(lease_seconds=-1.0)
    rows.make(status="running", worker_id=worker_id, claim=1, attempts=1)
    rescued = call(jobs.rescue_jobs, max_jobs=10, default_max_losses=3)
    assert rows.healthy in {row.id for row in rescued}
    rows.expect("ready", "failed", "cancelled")


def release_unheld(rows: Rows) -> None:
    worker_id = make_worker()
    rows.make(status="running", worker_id=worker_id, claim=1, attempts=1)
    ask(jobs.send_release_unheld, worker_id=worker_id, held_ids=[], max_jobs=10)
    rows.expect("ready", "running", "cancelled")


def cancel_what_runs(rows: Rows) -> None:
    worker_id = make_worker()
    made = rows.make(status="running", worker_id=worker_id, claim=1, attempts=1)
    assert set(call(jobs.cancel_jobs, made)) == set(made)
    assert (rows.healthy,) in ask(jobs.send_cancel_listing, worker_id=worker_id)
    rows.expect("running")


def promote(rows: Rows) -> None:
    rows.make(run_after=sql.SQL("now() - interval '1 h'"), due_at=sql.SQL("now()"))
    ask(jobs.send_promotion, max_jobs=10)
    assert get_job(rows.healthy).due_at is None


def change_what_waits(rows: Rows) -> None:
    made = rows.make(due_at=sql.SQL("now()"), hold="dependencies", waits_for=1)
    make_edges(make_job(), made, "cancel")
    when = {"run_after": None, "delay": 5.0, "spread": 2.0}
    assert set(call(jobs.reschedule_jobs, made, **when)) == set(made)
    assert len(call(fetch, "reset_attempts", {"ids": made})) == 2
    moved = {"ids": made, "queue_name": "other", "priority": 5}
    assert len(call(fetch, "move_jobs", moved)) == 2
    assert set(call(jobs.cancel_jobs, made)) == set(made)
    rows.expect("cancelled")


def discard_what_waits(rows: Rows) -> None:
    made = rows.make(hold="dependencies", waits_for=1)
    make_edges(make_job(), made, "cancel")
    assert len(call(bulk.discard_jobs, made, note="x")) == 2
    rows.expect("cancelled")


def change_what_failed(rows: Rows) -> None:
    made = rows.make(status="failed", finished_at=sql.SQL("now()"), attempts=1)
    requeued = call(jobs.requeue_jobs, made, run_after=None, delay=None)
    assert {row.id for row in requeued if row.queue_name is not None} == set(made)
    rows.expect("ready")


def prune_and_delete(rows: Rows) -> None:
    made = rows.make(status="failed", finished_at=sql.SQL("now() - interval '1 h'"))
    pruned = call(jobs.prune_jobs, old=jobs.OldJobs("failed", 1.0), max_jobs=10)
    assert pruned == 2 - len(call(fetch, "delete_jobs", {"ids": made, "statuses": ["failed"]}))
    assert execute("SELECT FROM pgjobs_job") == []


def make_edges(predecessor_id: int, waiting: list[int], after_failure: str) -> None:
    """Let jobs wait for another one."""
    execute(
        "INSERT INTO pgjobs_dependency (predecessor_id, job_id, after_failure)"
        " SELECT %s, id, %s FROM unnest(%s) AS id",
        predecessor_id,
        after_failure,
        waiting,
    )


def resolve(rows: Rows) -> None:
    made = rows.make(hold="dependencies", waits_for=1)
    for after_failure, status in (("cancel", "failed"), ("run", "cancelled")):
        with transaction.atomic():
            make_edges(make_job(status=status), made, after_failure)
            [(predecessor_id,)] = execute("SELECT max(predecessor_id) FROM pgjobs_dependency")
            call(dependencies.resolve_dependencies, [predecessor_id])
            expected = "cancelled" if after_failure == "cancel" else "ready"
            rows.expect(expected, "ready", "cancelled")
            transaction.set_rollback(True)


def test_what_runs_without_a_worker_is_rescued() -> None:
    job_id = make_job(status="running")
    [rescued] = call(jobs.rescue_jobs, max_jobs=10, default_max_losses=3)
    assert (rescued.id, rescued.worker_id, rescued.status) == (job_id, None, "ready")


SCENARIOS = [
    claim_and_succeed,
    claim_and_fail,
    claim_and_give_back,
    claim_and_fill_in,
    claim_by_keys_and_succeed,
    rescue,
    release_unheld,
    cancel_what_runs,
    promote,
    change_what_waits,
    discard_what_waits,
    change_what_failed,
    prune_and_delete,
    resolve,
]


@pytest.mark.parametrize("odd", some_always(STORABLE, every=20), ids=str)
def test_an_odd_row_harms_only_itself(odd: Odd) -> None:
    for scenario in SCENARIOS:
        with transaction.atomic():
            try:
                scenario(Rows(odd))
            except Exception as error:
                error.add_note(f"in {scenario.__name__}")
                raise
            transaction.set_rollback(True)


@pytest.mark.parametrize("detailed", [True, False])
@pytest.mark.parametrize("odd", some_always(STORABLE, every=20), ids=str)
def test_an_odd_row_runs_or_fails_alone(
    odd: Odd, detailed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The task wants the whole row, from the claim or from the table."""
    caplog.set_level("DEBUG")
    rows = Rows(odd)
    rows.make(task_path="tests.tasks.describe_context", args=[])
    options = support.make_options(unknown_fails=True, max_attempts=2)
    for row in claim(rows, detailed=detailed).values():
        attempt = make_attempt(row, options)
        log_start(attempt, "test:1")
        outcome = run_in_thread(attempt, options)
        log_outcome(attempt, outcome, "test:1")
        support.write(DjangoConnection(), (attempt, outcome))  # type: ignore[arg-type]
        announce_finish(attempt, outcome)
    others = ["cancelled"] if odd.column == "expires_at" else []
    rows.expect("successful", "ready", "failed", *others)
    if rows.status(rows.odd) == "failed":
        [(errors,)] = execute("SELECT errors FROM pgjobs_job WHERE id = %s", rows.odd)
        last = json.loads(errors)[-1]
        assert last["exception_class"].startswith("django_pgjobs.exceptions."), last
        assert last["message"]


@pytest.mark.parametrize("value", ["'20000-01-01'", "'infinity'"])
def test_a_row_that_cannot_be_read_is_not_tried_again(value: str) -> None:
    rows = Rows(Odd("enqueued_at", value, odd_rows.TIMES))
    rows.make(task_path="tests.tasks.describe_context", args=[])
    options = support.make_options()
    for row in claim(rows).values():
        attempt = make_attempt(row, options)
        outcome = run_in_thread(attempt, options)
        support.write(DjangoConnection(), (attempt, outcome))  # type: ignore[arg-type]
    assert (rows.status(rows.healthy), rows.status(rows.odd)) == ("successful", "failed")


def test_a_row_that_waited_for_ever_is_logged() -> None:
    """`-infinity` in enqueued_at, from before it was refused."""
    assert logged_duration(float("inf")) == "inf"


@pytest.mark.parametrize("odd", [odd for odd in ODD_VALUES if odd.refused_by], ids=str)
def test_an_odd_value_is_refused_where_it_enters(odd: Odd) -> None:
    with pytest.raises(DatabaseError, match=odd.refused_by), transaction.atomic():
        make_job(**{odd.column: sql.SQL(odd.value)})


def test_each_column_has_odd_values() -> None:
    columns = execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'pgjobs_job'::regclass"
        " AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"
    )
    assert {name for (name,) in columns} == set(ODD)
