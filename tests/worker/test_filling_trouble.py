"""A key function of the project meets trouble in a database while a worker fills in a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import (
    DataError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from psycopg import errors

from django_pgjobs import task
from django_pgjobs.queries.errors import is_of_the_moment
from django_pgjobs.results import exception_path
from django_pgjobs.worker.claiming.filling import UNUSABLE, filling_of
from django_pgjobs.worker.running.outcome import Kind
from tests.factories import get_job, make_job
from tests.helpers import connect
from tests.worker.support import Bench, ThreadedWorker, make_attempt_of, write

raised: list[BaseException] = []


def of_shop(shop_id: int) -> str:
    """Be a key for which the database is asked, which may not be there."""
    if raised:
        raise raised.pop()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'shop:' || %s::text", [shop_id])
        return str(cursor.fetchone()[0])


@task(concurrency_key=of_shop, backoff=[0], max_attempts=3, retry_on=(TimeoutError,))
def keyed(shop_id: int) -> int:
    return shop_id


@pytest.fixture(autouse=True)
def _forget() -> None:
    raised.clear()


def caused_by(error: BaseException, cause: BaseException) -> BaseException:
    """Return an error as Django raises it."""
    error.__cause__ = cause
    return error


MOMENTARY = [
    OperationalError("of another database"),
    caused_by(OperationalError("server closed"), psycopg.OperationalError("server closed")),
    caused_by(InterfaceError("already closed"), psycopg.InterfaceError("already closed")),
    caused_by(OperationalError("crossed"), errors.SerializationFailure("crossed")),
    caused_by(OperationalError("crossed"), errors.DeadlockDetected("crossed")),
    caused_by(OperationalError("locked"), errors.LockNotAvailable("locked")),
    caused_by(OperationalError("full"), errors.TooManyConnections("full")),
    errors.AdminShutdown("of psycopg itself"),
]
LASTING = [
    TypeError("no"),
    LookupError("no shop"),
    DataError("no number"),
    caused_by(OperationalError("no such database"), errors.InvalidCatalogName("it is not there")),
]


@pytest.mark.parametrize("error", MOMENTARY, ids=str)
def test_what_may_be_gone_next_time_is_of_the_moment(error: BaseException) -> None:
    assert is_of_the_moment(error)


@pytest.mark.parametrize("error", LASTING, ids=str)
def test_what_is_wrong_with_code_or_arguments_is_not(error: BaseException) -> None:
    assert not is_of_the_moment(error)


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_away_costs_an_attempt_and_not_the_job(
    drain: Callable[..., ThreadedWorker],
) -> None:
    raised.extend(OperationalError("server closed the connection") for _ in range(2))
    job_id = make_job(keyed.module_path, kwargs={"shop_id": 7})
    drain()
    job = get_job(job_id)
    assert (job.status, job.attempts, job.concurrency_key) == ("successful", 3, "shop:7")
    classes = [error["exception_class"] for error in job.errors]
    assert classes == ["django.db.utils.OperationalError"] * 2


@pytest.mark.django_db(transaction=True)
def test_it_is_bounded_by_the_attempts(drain: Callable[..., ThreadedWorker]) -> None:
    raised.extend(OperationalError("server closed the connection") for _ in range(9))
    job_id = make_job(keyed.module_path, kwargs={"shop_id": 7})
    drain()
    job = get_job(job_id)
    assert (job.status, job.attempts, len(job.errors), len(raised)) == ("failed", 3, 3, 6)
    assert not job.is_declared


@pytest.mark.django_db(transaction=True)
def test_a_session_that_the_server_ends_is_no_failure_of_the_job(bench: Bench) -> None:
    """As it really comes: the next try has a new connection."""
    job_id = make_job(keyed.module_path, kwargs={"shop_id": 7})
    attempt = bench.claim()
    connection.ensure_connection()
    with connect() as other:
        pid = connection.connection.info.backend_pid
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
    outcome = filling_of(attempt)
    assert outcome is not None and outcome.kind is Kind.RETRY
    connections.close_all()
    write(bench.connection, (attempt, outcome))
    assert (get_job(job_id).status, get_job(job_id).attempts) == ("ready", 1)
    again = filling_of(bench.claim())
    assert again is not None and again.kind is Kind.FILL


class Shapeless(OperationalError):
    """An error that cannot be looked at."""

    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no cause")


def leave(error: BaseException, result: Any) -> float:
    """Be a backoff that ends the program."""
    raise SystemExit("no patience")


@task(concurrency_key=of_shop, backoff=leave)
def impatient(shop_id: int) -> int:
    return shop_id


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("declared", "error"),
    [(keyed, Shapeless("odd")), (impatient, OperationalError("server closed the connection"))],
    ids=["an error that exits when it is looked at", "a backoff that exits"],
)
def test_whatever_the_code_of_a_key_does_the_worker_goes_on(
    drain: Callable[..., ThreadedWorker], declared: Any, error: BaseException
) -> None:
    """It runs in the pump."""
    raised.append(error)
    bad = make_job(declared.module_path, kwargs={"shop_id": 7})
    good = make_job()
    drain()
    assert (get_job(bad).status, get_job(good).status) == ("failed", "successful")
    [entry] = get_job(bad).errors
    assert entry["exception_class"] == exception_path(type(error))


def of_open_transaction(shop_id: int) -> str:
    """Be a key whose function leaves a transaction open."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 'shop:' || %s::text", [shop_id])
        [key] = cursor.fetchone()
    transaction.atomic().__enter__()
    return str(key)


@task(concurrency_key=of_open_transaction)
def left_open(shop_id: int) -> int:
    return shop_id


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_the_function_of_a_key_leaves_open_harms_no_other(
    drain: Callable[..., ThreadedWorker],
) -> None:
    made = [make_job(left_open.module_path, kwargs={"shop_id": shop}) for shop in (7, 8, 9)]
    drain()
    found = [(get_job(job_id).status, get_job(job_id).concurrency_key) for job_id in made]
    assert found == [("successful", f"shop:{shop}") for shop in (7, 8, 9)]


def test_one_that_would_expire_meanwhile_fails() -> None:
    raised.append(OperationalError("server closed the connection"))
    outcome = filling_of(attempt_of(expires_in=0.0))
    assert outcome is not None and outcome.kind is Kind.FAIL


def test_an_error_of_the_code_fails_the_job_at_once() -> None:
    raised.append(TypeError("on purpose"))
    outcome = filling_of(attempt_of())
    assert outcome is not None
    assert (outcome.kind, outcome.note) == (Kind.FAIL, UNUSABLE)


def attempt_of(**columns: Any) -> Any:
    """Return an attempt of a row that lacks its key."""
    undeclared = "[null, null, false, null, 1, null, false]"
    given = {"args": "[7]", "undeclared": undeclared} | columns
    return make_attempt_of(1, keyed.module_path, **given)
