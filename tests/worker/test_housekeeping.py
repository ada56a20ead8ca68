"""Between two jobs of a slot: whatever the first leaves behind, the next notices nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from django.db.backends.signals import connection_created

from django_pgjobs import Task
from django_pgjobs.queries.sessions import reset_session
from django_pgjobs.worker.running import housekeeping
from django_pgjobs.worker.running.async_slots import AsyncSlots
from django_pgjobs.worker.running.outcome import Kind
from django_pgjobs.worker.running.slots import Slots
from tests import tasks
from tests.factories import get_job
from tests.helpers import wait_until
from tests.models import Effect
from tests.worker import dirt
from tests.worker.support import ThreadedWorker, run_in_one_slot

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


FUNCTIONS = """
CREATE FUNCTION set_tenant(name text) RETURNS text LANGUAGE sql
    AS $$ SELECT set_config('app.tenant', name, false) $$;
CREATE FUNCTION lock_tenant(number bigint) RETURNS void LANGUAGE sql
    AS $$ SELECT pg_advisory_lock(number) $$;
"""


@pytest.fixture(autouse=True)
def _functions_of_the_project(transactional_db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(FUNCTIONS)
    yield
    dirt.left_open.kept.clear()
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION set_tenant(text), lock_tenant(bigint)")


def results(*jobs: Any) -> list[Any]:
    """Return the results of jobs that must have been successful."""
    rows = [get_job(job.id) for job in jobs]
    assert {row.status for row in rows} == {"successful"}, [row.errors for row in rows]
    return [row.result for row in rows]


def probe_around(slots: type[Slots] | type[AsyncSlots], task: Task, name: str) -> list[Any]:
    """Run a probe, some dirt and a probe in one slot; return what the probes found."""
    probe = dirt.probe if slots is Slots else dirt.probe_async
    outcomes = run_in_one_slot(slots, (probe, []), (task, [name]), (probe, []))
    found = [outcomes[0], outcomes[2]]
    assert [outcome.kind for outcome in found] == [Kind.DONE] * 2, found
    return [json.loads(outcome.result) for outcome in found]


def assert_only_probes_were_committed() -> None:
    assert Effect.objects.filter(key="probe").count() == 2
    assert not Effect.objects.filter(key="uncommitted").exists()


@pytest.mark.parametrize("name", dirt.DIRT)
def test_the_next_job_notices_nothing(name: str) -> None:
    """The same before and after, and what was not committed is gone."""
    before, after = probe_around(Slots, dirt.leave, name)
    assert after == before
    assert_only_probes_were_committed()


@pytest.mark.parametrize(
    "name", ["atomic never left after a write", "role", "closed behind Django"]
)
def test_the_next_job_notices_nothing_of_a_job_that_failed_either(name: str) -> None:
    before, after = probe_around(Slots, dirt.leave_and_fail, name)
    assert after == before
    assert_only_probes_were_committed()


@pytest.mark.parametrize(
    "name",
    [
        "atomic never left",
        "atomic never left after a write",
        "aborted transaction",
        "search_path",
        "terminated by the server",
    ],
)
def test_the_next_async_job_notices_nothing(name: str) -> None:
    """Async jobs share one connection, which is cleaned when none of them runs."""
    before, after = probe_around(AsyncSlots, dirt.leave_async, name)
    assert after == before
    assert_only_probes_were_committed()


@pytest.mark.parametrize("name", ["atomic never left after a write", "role"])
def test_in_a_whole_worker_the_next_job_notices_nothing(drain: Start, name: str) -> None:
    before = dirt.probe.enqueue()
    dirt.leave.enqueue(name)
    after = dirt.probe.enqueue()
    drain(concurrency=1)
    first, second = results(before, after)
    assert second == first
    assert_only_probes_were_committed()


def test_a_cursor_that_was_kept_from_an_earlier_job_is_noticed() -> None:
    outcomes = run_in_one_slot(
        Slots,
        (dirt.open_kept_cursor, []),
        (dirt.leave, ["setting by a kept cursor"]),
        (dirt.tenant, []),
    )
    assert outcomes[2].result == '""'


@pytest.fixture
def resets() -> Iterator[mock.MagicMock]:
    """Count the resets of sessions."""
    with mock.patch.object(housekeeping, "reset_session", wraps=reset_session) as spied:
        yield spied


def test_a_job_that_uses_no_connection_costs_no_reset(resets: mock.MagicMock) -> None:
    nothing = (dirt.do_nothing, [])
    run_in_one_slot(Slots, nothing, (dirt.backend_pid, []), nothing, nothing)
    assert resets.call_count == 1


def test_a_task_that_promises_to_leave_nothing_is_not_cleaned_up_after(
    resets: mock.MagicMock,
) -> None:
    outcomes = run_in_one_slot(
        Slots, (dirt.set_tenant_as_promised, ["kept"]), (dirt.tenant, []), (dirt.tenant, [])
    )
    assert [outcome.result for outcome in outcomes[1:]] == ['"kept"', '""']
    assert resets.call_count == 2


def test_an_attempt_that_failed_is_cleaned_up_after_whatever_its_task_promises() -> None:
    outcomes = run_in_one_slot(Slots, (dirt.fail_with_tenant, ["kept"]), (dirt.tenant, []))
    assert outcomes[1].result == '""'


def test_a_connection_that_prepares_statements_keeps_them(resets: mock.MagicMock) -> None:
    """The driver counts on those that it has prepared."""
    options = connection.settings_dict["OPTIONS"]
    with mock.patch.dict(options, {"prepare_threshold": 0, "server_side_binding": True}):
        outcomes = run_in_one_slot(Slots, *[(dirt.backend_pid, [])] * 4)
    assert len({outcome.result for outcome in outcomes}) == 1
    assert resets.call_count == 4


def test_a_session_that_a_job_gave_back_to_a_pool_is_reset_when_it_comes_out_again() -> None:
    """`connection.close()` in a job does not end the session where the project pools them."""
    connection.ensure_connection()
    dirt.execute("SELECT set_tenant('left over')")()
    connection_created.send(sender=type(connection), connection=connection)
    assert dirt.tenant.func() == ""


def test_a_connection_that_a_task_made_for_itself_is_left_alone() -> None:
    nothing = (dirt.do_nothing, [])
    run_in_one_slot(Slots, nothing, (dirt.open_own_connection, []), nothing)
    [own] = dirt.left_open.kept
    assert not own.connection.closed
    own.connection.close()


def test_a_connection_is_cleaned_however_often_it_was_closed() -> None:
    outcomes = run_in_one_slot(
        Slots,
        (dirt.close_connection, []),
        (dirt.leave, ["role"]),
        (dirt.close_connection, []),
        (dirt.leave, ["setting of a project"]),
        (dirt.tenant, []),
    )
    assert outcomes[-1].result == '""'


def test_a_clean_connection_is_kept_for_the_next_job(drain: Start) -> None:
    """Opening one costs fifty times as much as cleaning it."""
    jobs = [dirt.backend_pid.enqueue() for _ in range(5)]
    drain(concurrency=1)
    assert len(set(results(*jobs))) == 1


def test_a_connection_that_the_server_ended_between_two_jobs_is_replaced(
    start_thread: Start,
) -> None:
    """Stale connections after an idle time; the job does not fail."""
    start_thread(concurrency=1)
    first = dirt.backend_pid.enqueue()
    wait_until(lambda: get_job(first.id).status == "successful")
    [pid] = results(first)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 15000)", [pid])
    second = dirt.backend_pid.using(max_attempts=1).enqueue()
    wait_until(lambda: get_job(second.id).status in ("successful", "failed"))
    assert results(second) != [pid]


def test_the_connections_of_the_slots_are_closed_at_the_end(start_thread: Start) -> None:
    worker = start_thread(concurrency=3)
    jobs = [tasks.record.enqueue(f"{number}") for number in range(20)]
    jobs.append(tasks.add_async.enqueue(1, 2))
    wait_until(lambda: {get_job(job.id).status for job in jobs} == {"successful"})
    assert other_sessions() > 0
    worker.close()
    wait_until(lambda: other_sessions() == 0)


def other_sessions() -> int:
    """Return how many connections to the test database there are beside the test's own."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])
