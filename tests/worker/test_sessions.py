"""The worker's own sessions and those of jobs, when the server changes under them.

Somebody alters a column, the server becomes read-only, a role ends idle sessions: the session
that meets it is given up, and the next one works.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection

from django_pgjobs.queries import claims
from django_pgjobs.queries.connection import OwnConnection, SessionUnusable
from django_pgjobs.queries.cursor import Cursor
from django_pgjobs.queries.own_settings import connection_parameters
from django_pgjobs.queries.sends import Question
from django_pgjobs.worker.running.slots import Slots
from tests import tasks
from tests.factories import get_job, get_worker
from tests.helpers import connect, wait_until
from tests.models import Effect
from tests.worker import dirt
from tests.worker.support import NEVER, ThreadedWorker, run_in_one_slot

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def execute(query: str) -> None:
    with connect() as other:
        other.execute("SET default_transaction_read_only = off")
        other.execute(query)


@contextlib.contextmanager
def altered(table: str, column: str, to: str, *, back: str) -> Iterator[None]:
    """Let a column have another type."""
    execute(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {to}")
    try:
        yield
    finally:
        execute(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {back}")


def wait_until_done(job_id: int | str) -> None:
    wait_until(lambda: get_job(job_id).status == "successful")


@pytest.fixture
def for_database() -> Iterator[Callable[[str, str], None]]:
    """Give the sessions that begin from now on a setting: `for_database(name, value)`."""
    names: list[str] = []
    database = connection.settings_dict["NAME"]

    def set_one(name: str, value: str) -> None:
        names.append(name)
        execute(f"ALTER DATABASE {database} SET {name} = '{value}'")

    yield set_one
    for name in names:
        execute(f"ALTER DATABASE {database} RESET {name}")


@pytest.mark.slow
def test_jobs_run_on_after_somebody_altered_a_column_that_the_claim_returns(
    start_thread: Start,
) -> None:
    """A prepared statement "must not change result type": the session can claim no more."""
    start_thread(poll_interval=0.1)
    wait_until_done(tasks.add.enqueue(1, 2).id)
    with altered("pgjobs_job", "max_attempts", "bigint", back="integer"):
        job = tasks.add.enqueue(1, 2)
        wait_until_done(job.id)
    wait_until_done(tasks.add.enqueue(1, 2).id)
    assert get_job(job.id).attempts == 1


def test_a_session_whose_statements_do_not_fit_the_tables_any_more_is_given_up(
    own: OwnConnection,
) -> None:
    def select() -> list[tuple[object, ...]]:
        with own.cursor() as cursor:
            return cursor.execute("SELECT key FROM public.tests_effect").fetchall()

    Effect.objects.create(key="7")
    assert select() == [("7",)]
    with altered("tests_effect", "key", "varchar", back="text"):
        with pytest.raises(SessionUnusable, match="cached plan must not change result type"):
            select()
        assert not own.is_open
        assert select() == [("7",)]


def test_a_session_that_turned_read_only_is_given_up_in_a_pipeline_too(own: OwnConnection) -> None:
    insert = "INSERT INTO public.tests_effect (key, made_at) VALUES ('own', now())"
    sends = [lambda cursor: cursor.execute("SELECT 1"), lambda cursor: cursor.execute(insert)]
    with own.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    with pytest.raises(SessionUnusable, match="read-only transaction"):
        own.round_trip(sends)
    assert not own.is_open
    own.round_trip(sends)
    assert Effect.objects.filter(key="own").count() == 1


@pytest.mark.parametrize("is_read_only", [True, False])
def test_own_sessions_ask_for_a_primary_and_not_for_the_default_of_transactions(
    own: OwnConnection, for_database: Callable[[str, str], None], is_read_only: bool
) -> None:
    """A role or database may be read-only by default: the worker's sessions switch that off."""
    for_database("default_transaction_read_only", "on" if is_read_only else "off")
    assert connection_parameters("default")["target_session_attrs"] == "primary"
    with own.cursor() as cursor:
        cursor.execute("INSERT INTO public.tests_effect (key, made_at) VALUES ('own', now())")


def test_own_sessions_read_and_write_values_in_one_way(
    own: OwnConnection, for_database: Callable[[str, str], None]
) -> None:
    """Of a NULL in an array the server would make a word, and psycopg reads no date of others."""
    for_database("array_nulls", "off")
    for_database("DateStyle", "German")
    with own.cursor() as cursor:
        cursor.execute("SELECT '{1,NULL}'::integer[], 'epoch'::timestamptz")
        assert cursor.fetchall() == [([1, None], datetime.fromtimestamp(0, UTC))]


def test_what_the_project_says_of_hosts_is_kept() -> None:
    with mock.patch.dict(connection.settings_dict["OPTIONS"], target_session_attrs="any"):
        assert connection_parameters("default")["target_session_attrs"] == "any"


@pytest.mark.slow
def test_own_sessions_outlive_a_timeout_for_idle_ones(
    start_thread: Start, for_database: Callable[[str, str], None]
) -> None:
    # On a busy machine a worker that starts leaves one of Django's sessions idle for a moment.
    for_database("idle_session_timeout", "1s")
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    # That of the lease it does not keep.
    kept = wait_until(processes_that_are_kept)
    # The pump may have done something later than the first of them was opened.
    for _ in range(2):
        idle = connect()
        with contextlib.closing(idle), pytest.raises(psycopg.OperationalError):
            list(idle.notifies(timeout=15))
    # The lease may have one at any time.
    assert kept <= processes_of_worker()


def test_own_sessions_outlive_a_timeout_for_statements_and_transactions(
    start_thread: Start, for_database: Callable[[str, str], None]
) -> None:
    """A worker that parks is in a transaction for 0.9 s, again and again."""
    with connection.cursor() as cursor:
        # PostgreSQL 17 has brought the latter.
        cursor.execute(
            "SELECT name FROM pg_settings"
            " WHERE name IN ('statement_timeout', 'transaction_timeout')"
        )
        names = cursor.fetchall()
    for (name,) in names:
        for_database(name, "300ms")
    for _ in range(2):
        start_thread(poll_interval=NEVER)
    parked = wait_until(sessions_that_park)
    with contextlib.closing(connect()) as bounded, pytest.raises(psycopg.Error):
        bounded.execute("SELECT pg_sleep(15)")
    assert wait_until(sessions_that_park) == parked


def sessions_that_park() -> list[int]:
    """Return the processes of the server in which workers wait for the watch."""
    with connect() as observer:
        return [
            pid
            for (pid,) in observer.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'pgjobs upkeep' AND wait_event = 'advisory'"
            )
        ]


def processes_that_are_kept() -> set[tuple[str, int]]:
    """Return those of pump and upkeep if there are no others; else nothing."""
    found = processes_of_worker()
    return found if {name for name, _ in found} == {"pgjobs pump", "pgjobs upkeep"} else set()


def processes_of_worker() -> set[tuple[str, int]]:
    """Return name and process of the sessions that a worker keeps; that of pruning it closes."""
    with connect(options="-c idle_session_timeout=0") as observer:
        return set(
            observer.execute(
                "SELECT application_name, pid FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'pgjobs %'"
                " AND application_name <> 'pgjobs pruner'"
            ).fetchall()
        )


def test_the_job_after_one_that_met_a_read_only_server_gets_a_new_session() -> None:
    """As after a failover, when the address leads elsewhere by then."""
    outcomes = run_in_one_slot(
        Slots, (dirt.backend_pid, []), (dirt.write_read_only, []), (dirt.backend_pid, [])
    )
    assert outcomes[0].result != outcomes[2].result


def test_the_job_after_one_whose_prepared_statement_fits_no_more_gets_a_new_session() -> None:
    options = connection.settings_dict["OPTIONS"]
    Effect.objects.create(key="7")
    with mock.patch.dict(options, {"prepare_threshold": 0, "server_side_binding": True}):
        outcomes = run_in_one_slot(
            Slots,
            (dirt.read_effect, []),
            (dirt.alter_effect, ["varchar"]),
            (dirt.read_effect, []),
            (dirt.read_effect, []),
            (dirt.alter_effect, ["text"]),
        )
    kinds = [outcome.kind.name for outcome in outcomes]
    assert kinds == ["DONE", "DONE", "FAIL", "DONE", "DONE"], outcomes


def test_statements_that_fail_half_way_through_their_transaction_leave_none_open(
    own: OwnConnection,
) -> None:
    answers: list[Any] = []
    question = Question(lambda cursor: cursor.execute("SELECT 7"), answers.append)
    with pytest.raises(psycopg.errors.DivisionByZero):
        own.round_trip([question, lambda cursor: cursor.execute("SELECT 1 / 0")])
    assert answers == [[(7,)]]
    assert own.round_trip([lambda cursor: cursor.execute("SELECT 1")]) == [[(1,)]]


def send_numbers(cursor: Cursor) -> None:
    cursor.execute("SELECT generate_series(1, 3)")


def send_nothing(cursor: Cursor) -> None:
    pass


def test_a_statement_that_is_not_sent_has_no_rows_of_an_earlier_one(own: OwnConnection) -> None:
    """Cursors are used again."""

    def send_error(cursor: Cursor) -> None:
        cursor.execute("SELECT 1/0")

    numbers = [(1,), (2,), (3,)]
    assert own.round_trip([send_numbers, send_numbers]) == [numbers, numbers]
    assert own.round_trip([send_nothing, send_nothing, send_numbers]) == [[], [], numbers]
    with pytest.raises(psycopg.errors.DivisionByZero):
        own.round_trip([send_numbers, send_error])
    assert own.round_trip([send_nothing, send_nothing]) == [[], []]
    own.close()
    assert own.round_trip([send_nothing, send_numbers]) == [[], numbers]


@pytest.mark.slow
def test_a_worker_that_stands_still_while_it_chooses_holds_up_nobody_for_long(
    own: OwnConnection,
) -> None:
    """The server ends its session, and with it the right to claim jobs with keys."""
    own.round_trip([claims.send_hold])  # makes the row that is held, if a flush took it

    def is_free() -> bool:
        with connect() as other:
            found = other.execute("SELECT id FROM pgjobs_keyed_claim FOR UPDATE SKIP LOCKED")
            return bool(found.fetchall())

    def stand_still(rows: list[Any]) -> None:
        assert not is_free()
        wait_until(is_free)

    question = Question(claims.send_hold, stand_still)
    with pytest.raises(psycopg.OperationalError):
        own.round_trip([question, lambda cursor: cursor.execute("SELECT 1")])
    assert own.round_trip([lambda cursor: cursor.execute("SELECT 1")]) == [[(1,)]]
