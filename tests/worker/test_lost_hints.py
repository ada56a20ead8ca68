"""A request that the worker was told of once is not forgotten because a round trip failed.

A notification tells of a cancel once, a task reports its progress once. Whatever happens to the
turn that was to deal with it, another one does. And no hint is more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from psycopg.errors import SerializationFailure

from django_pgjobs import cancel
from django_pgjobs.queries import jobs
from django_pgjobs.worker.claiming.places import Places
from django_pgjobs.worker.claiming.plan import Plan
from django_pgjobs.worker.upkeep import cancels, upkeep
from tests import tasks
from tests.factories import get_job, get_worker
from tests.helpers import wait_until
from tests.proxy import TcpProxy
from tests.worker import tasks as gate_tasks
from tests.worker.support import NEVER, Gate, ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]
CANCEL_LISTING = "job.status = 'running' AND job.cancel_requested_at IS NOT NULL"
PROGRESS = "report.progress::jsonb"


@pytest.fixture
def cancellable(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Start a worker with a job that runs, and let it listen; return the job's id."""

    monkeypatch.setattr(cancels, "CANCEL_SECONDS", NEVER)

    def make(start: Start) -> str:
        worker = start(poll_interval=NEVER)
        job = gate_tasks.wait_at_gate.enqueue()
        gate.wait_entered()
        wait_until(lambda: get_worker(worker.id).listening)
        # The upkeep's first look for cancelled jobs is over when a cancel after it arrives.
        other = gate_tasks.wait_at_gate.enqueue()
        gate.wait_entered()
        assert cancel(other)
        wait_until(lambda: get_job(other.id).status == "cancelled")
        return job.id

    return make


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cancel_arrives_though_the_connection_breaks_when_the_worker_asks_for_it(
    start_proxied: Start, proxy: TcpProxy, cancellable: Callable[..., str], when: Any
) -> None:
    job_id = cancellable(start_proxied)
    lost = proxy.cut_on(CANCEL_LISTING, when=when)
    assert cancel(job_id)
    lost.wait()
    wait_until(lambda: get_job(job_id).status == "cancelled")


def test_a_cancel_arrives_though_another_worker_crosses_the_turn(
    start_thread: Start, cancellable: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = cancellable(start_thread)
    send, crossed = jobs.send_cancel_listing, []

    def cross_once(cursor: Any, **params: Any) -> None:
        if not crossed:
            crossed.append(1)
            raise SerializationFailure("crossed")
        send(cursor, **params)

    monkeypatch.setattr(jobs, "send_cancel_listing", cross_once)
    assert cancel(job_id)
    wait_until(lambda: get_job(job_id).status == "cancelled")
    assert crossed


def test_a_cancel_whose_notification_is_lost_is_seen_by_a_look_that_nobody_asked_for(
    start_thread: Start, cancellable: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancels, "CANCEL_SECONDS", 0.1)
    job_id = cancellable(start_thread)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET cancel_requested_at = now() WHERE id = %s", [job_id])
    wait_until(lambda: get_job(job_id).status == "cancelled")


@pytest.mark.parametrize("when", ["before", "after"])
def test_progress_is_written_though_the_connection_breaks_at_it(
    start_proxied: Start, proxy: TcpProxy, gate: Gate, when: Any
) -> None:
    start_proxied()
    lost = proxy.cut_on(PROGRESS, when=when)
    job = gate_tasks.report_progress.enqueue()
    gate.wait_entered()
    lost.wait()
    wait_until(lambda: (get_job(job.id).progress or {}).get("done") == 2)
    assert get_job(job.id).status == "running"


@pytest.mark.slow
def test_what_a_task_reports_while_its_progress_is_written_is_written_next(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last report is the one that people see."""
    worker = start_thread()
    send = jobs.send_progress

    def send_and_report(cursor: Any, reports: Any) -> None:
        send(cursor, reports)
        for attempt in worker.runner.state.held.values():
            if '"done": 2' in attempt.progress:
                attempt.progress = '{"done": 10}'

    monkeypatch.setattr(jobs, "send_progress", send_and_report)
    job = gate_tasks.report_progress.enqueue()
    wait_until(lambda: (get_job(job.id).progress or {}).get("done") == 10)


def test_progress_that_another_worker_crosses_is_written_later(
    start_thread: Start, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, crossed = jobs.send_progress, []

    def cross_some(cursor: Any, reports: Any) -> None:
        # In the turn, and again where its parts are sent apart.
        if len(crossed) < 3:
            crossed.append(1)
            raise SerializationFailure("crossed")
        send(cursor, reports)

    monkeypatch.setattr(jobs, "send_progress", cross_some)
    start_thread()
    job = gate_tasks.report_progress.enqueue()
    gate.wait_entered()
    wait_until(lambda: (get_job(job.id).progress or {}).get("done") == 2)
    assert len(crossed) == 3


def test_forged_notifications_of_any_number_of_queues_hold_up_no_job(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody who may connect can send them. A claim from each place would take too long to end."""
    lanes = [0]
    plan = Places.plan

    def plan_and_note(self: Places, *args: Any, **options: Any) -> Plan | None:
        planned = plan(self, *args, **options)
        lanes.append(len(planned.floors) if planned else 0)
        return planned

    monkeypatch.setattr(Places, "plan", plan_and_note)
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('pgjobs', 'forged ' || n) FROM generate_series(1, 2000) n")
        job = tasks.add.enqueue(1, 2)
    wait_until(lambda: get_job(job.id).status == "successful")
    assert max(lanes) <= 2 * upkeep.MOST_QUEUES
