"""`run_jobs()` where jobs fail, or end the connection of the test."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from django_pgjobs import current_job, task
from django_pgjobs.compat import task_started
from django_pgjobs.models import Job
from django_pgjobs.queries.sessions import usage_of
from django_pgjobs.testing import arun_jobs, run_jobs
from tests import tasks
from tests.factories import count_jobs, get_job, make_job
from tests.helpers import end_session, execute
from tests.models import Effect
from tests.worker.support import close_shared_thread
from tests.worker.tasks import backend_pid

pytestmark = pytest.mark.django_db


@task
def fail_at_first() -> None:
    """Succeed at the second attempt."""
    if current_job().attempt == 1:
        raise tasks.Mishap


def test_without_it_a_failing_job_fails_no_test() -> None:
    tasks.fail.enqueue()
    assert run_jobs() == 3


def test_the_exception_of_the_job_is_raised_with_where_it_was() -> None:
    tasks.fail.enqueue("ouch")
    with pytest.raises(tasks.Mishap, match="ouch") as caught:
        run_jobs(raises=True)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fail"


def test_it_is_stored_first_and_later_jobs_wait() -> None:
    failing = tasks.fail.enqueue()
    later = tasks.add.using(priority=-1).enqueue(1, 2)
    with pytest.raises(tasks.Mishap):
        run_jobs(raises=True)
    assert (get_job(failing.id).status, get_job(failing.id).attempts) == ("failed", 3)
    assert get_job(later.id).status == "ready"
    assert run_jobs(raises=True) == 1
    assert Job.objects.get(pk=later.id).result == 3


def test_a_retry_that_succeeds_raises_nothing() -> None:
    fail_at_first.enqueue()
    assert run_jobs(raises=True) == 2
    assert count_jobs(status="failed") == 0


def test_a_job_that_could_not_begin_raises_too() -> None:
    make_job("no.such_task")
    with pytest.raises(Exception, match=r"no\.such_task"):
        run_jobs(raises=True)


@pytest.mark.django_db(transaction=True)
def test_the_async_twin_raises_too() -> None:
    async def run() -> None:
        await tasks.fail_async.aenqueue("in a loop")
        await arun_jobs(raises=True)

    try:
        with pytest.raises(tasks.Mishap, match="in a loop"):
            asyncio.run(run())
    finally:
        close_shared_thread()


@task
def close_connection() -> None:
    """Do what code for threads does at its end."""
    connection.close()


@pytest.mark.django_db(transaction=True)
def test_a_job_may_close_the_connection() -> None:
    ids = [close_connection.enqueue().id for _ in range(2)]
    assert run_jobs() == 2
    assert [get_job(job_id).status for job_id in ids] == ["successful"] * 2


@task
def lose_session() -> None:
    """Let the server end the session."""
    end_session(backend_pid())


@task
def leave_transaction_open() -> None:
    """Write something that is never committed."""
    transaction.set_autocommit(False)
    Effect.objects.create(key="left", job_id=int(current_job().id))


@task
def begin() -> None:
    """Begin a transaction that Django does not know of."""
    execute("BEGIN")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rude", [lose_session, leave_transaction_open, begin])
def test_what_a_job_leaves_open_or_broken_reaches_no_other(rude: Any) -> None:
    """As in a worker."""
    ids = [each.enqueue().id for each in (rude, begin)]
    assert run_jobs() == 2
    assert connection.get_autocommit() and not connection.in_atomic_block
    assert [get_job(job_id).status for job_id in ids] == ["successful"] * 2
    assert not Effect.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_statements_of_jobs_are_counted() -> None:
    """As `assertNumQueries` does."""
    tasks.record.enqueue("counted")
    with CaptureQueriesContext(connection) as found:
        assert run_jobs() == 1
    assert any("tests_effect" in each["sql"] for each in found)


@pytest.mark.django_db(transaction=True)
def test_the_cleaning_between_two_jobs_may_close_the_connection() -> None:
    """A statement of the test has found it useless, say because the server takes no writes."""
    connection.ensure_connection()
    usage_of(connection.connection).is_stale = True
    job = tasks.add.enqueue(1, 2)
    task_started.connect(ignore)  # After receivers the connection is cleaned.
    try:
        assert run_jobs() == 1
    finally:
        task_started.disconnect(ignore)
    assert get_job(job.id).result == 3


def ignore(**kwargs: object) -> None:
    """Receive a signal."""
