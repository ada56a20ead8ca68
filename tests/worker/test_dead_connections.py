"""Django's connections that the server has ended between two uses: a restart, a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections

from django_pgjobs.compat import TaskResult, task_finished
from django_pgjobs.queries.sessions import usage_of
from django_pgjobs.worker.running.housekeeping import drop_dead_connections
from tests import tasks as plain_tasks
from tests.factories import get_job
from tests.helpers import end_session, wait_until
from tests.worker import tasks
from tests.worker.support import Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def ended(job_id: str) -> str:
    """Wait for the end of a job and return its status."""
    wait_until(lambda: get_job(job_id).status not in ("ready", "running"))
    return str(get_job(job_id).status)


def session_of_async_jobs() -> int:
    job = tasks.shared_session.enqueue()
    assert ended(job.id) == "successful"
    return int(get_job(job.id).result)


def test_an_async_job_that_begins_alone_gets_a_new_connection(start_thread: Start) -> None:
    start_thread()
    before = session_of_async_jobs()
    end_session(before)
    assert session_of_async_jobs() != before


@pytest.mark.slow
def test_async_jobs_that_overlap_meet_a_dead_connection_once(
    start_thread: Start, gate: Gate
) -> None:
    """They share it, and it is cleaned when none of them runs: perhaps never."""
    start_thread()
    tasks.wait_at_gate_async.enqueue()
    gate.wait_entered()
    end_session(session_of_async_jobs())
    assert ended(tasks.shared_session.enqueue().id) == "failed"
    session_of_async_jobs()
    gate.open()


def test_a_connection_that_has_become_useless_counts_as_dead() -> None:
    """A statement said so, such as that the server takes no writes any more."""
    connection.close()  # that of a test before may be dead
    connection.ensure_connection()
    drop_dead_connections()
    assert connection.connection is not None
    usage_of(connection.connection).is_stale = True
    drop_dead_connections()
    assert connection.connection is None


def test_a_connection_that_ended_while_it_was_opened_fails_one_job(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django keeps it, and tells nobody that it has opened it."""
    wrapper, cut = type(connections["default"]), []
    init = wrapper.init_connection_state

    def init_after_the_end(self: Any) -> None:
        if threading.current_thread().name.startswith("pgjobs-slot") and not cut:
            cut.append(self.connection.info.backend_pid)
            end_session(*cut)
        init(self)

    monkeypatch.setattr(wrapper, "init_connection_state", init_after_the_end)
    start_thread(concurrency=1)
    assert [ended(tasks.session.enqueue().id) for _ in range(2)] == ["failed", "successful"]


def test_task_finished_is_sent_over_a_new_connection(start_thread: Start) -> None:
    sessions: dict[str, int] = {}

    def note(sender: object, task_result: TaskResult, **kwargs: object) -> None:
        sessions[task_result.id] = tasks.backend_pid()

    start_thread()
    task_finished.connect(note)
    try:
        first = plain_tasks.add.enqueue(1, 2)
        wait_until(lambda: first.id in sessions)
        end_session(sessions[first.id])
        second = plain_tasks.add.enqueue(1, 2)
        wait_until(lambda: second.id in sessions)
    finally:
        task_finished.disconnect(note)
    assert sessions[first.id] != sessions[second.id]


def test_a_database_whose_driver_is_missing_fails_only_those_who_use_it(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings, "old", {"ENGINE": "tests.no_such_engine"})
    worker = start_thread()
    assert ended(plain_tasks.record.enqueue("stored").id) == "successful"
    worker.stop()
