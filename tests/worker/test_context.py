"""What a running job may ask and say: current_job(), the context argument, progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection

from django_pgjobs import cancel, current_job
from django_pgjobs.context import CurrentJob
from tests import tasks
from tests.factories import get_job
from tests.helpers import wait_until
from tests.worker import tasks as worker_tasks
from tests.worker.support import Bench, Gate, ThreadedWorker, make_attempt_of

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[..., ThreadedWorker]


def test_a_job_knows_its_id_its_attempt_and_how_many_there_are(bench: Bench) -> None:
    job = tasks.describe_job.using(max_attempts=7).enqueue()
    bench.run()
    assert get_job(job.id).result == {
        "id": job.id,
        "attempt": 1,
        "max_attempts": 7,
        "is_cancelled": False,
    }


def test_outside_a_job_there_is_none(bench: Bench) -> None:
    tasks.describe_job.enqueue()
    bench.run()
    with pytest.raises(LookupError, match="outside a running job"):
        current_job()


@pytest.mark.slow
def test_a_job_with_a_timeout_knows_how_long_it_may_run(drain: Start) -> None:
    without = worker_tasks.tell_time_left.enqueue()
    limited = worker_tasks.tell_time_left.using(timeout=60).enqueue()
    drain()
    assert get_job(without.id).result == [None]
    assert get_job(limited.id).result == [pytest.approx(60, abs=10)]


def test_the_context_tells_the_attempt_and_the_job(bench: Bench) -> None:
    job = tasks.describe_context.enqueue(5)
    bench.run()
    assert get_job(job.id).result == {"attempt": 1, "id": job.id, "value": 5}


@pytest.mark.slow
def test_the_context_counts_attempts(drain: Start) -> None:
    job = worker_tasks.fail_by_context.enqueue()
    drain()
    assert get_job(job.id).result == [3]


@pytest.mark.slow
def test_progress_is_stored_while_the_job_runs(start_thread: Start, gate: Gate) -> None:
    """S1.2: trackable. About once a second, and the newest report wins."""
    start_thread()
    job = worker_tasks.report_progress.enqueue()
    wait_until(lambda: get_job(job.id).progress is not None)
    stored = get_job(job.id).progress
    changed_at, pause = stored.pop("changed_at"), stored.pop("longest_pause")
    assert stored == {"done": 2, "total": 10, "message": "two\u2400"}
    assert get_job(job.id).status == "running"
    # Seconds, on the clock of the server.
    assert datetime.fromisoformat(changed_at).utcoffset() == timedelta(0)
    assert 0 <= pause < 60


def test_the_same_report_again_is_no_change() -> None:
    """S2.32: who says the same again and again stands still."""
    running = make_attempt_of(1)
    job = CurrentJob(running)
    running.started_at = time.monotonic() - 9
    job.progress(1, 10)
    first = running.progress
    running.progressed_at -= 5
    job.progress(1, 10)
    assert running.progress is first
    assert running.longest_pause == pytest.approx(9, abs=1)
    job.progress(2, 10)
    assert running.progress is not first
    assert running.longest_pause == pytest.approx(9, abs=1)
    running.progressed_at -= 70
    job.progress(3, 10)
    assert running.longest_pause == pytest.approx(70, abs=1)


@pytest.mark.slow
def test_progress_of_a_lost_attempt_changes_nothing(start_thread: Start, gate: Gate) -> None:
    """Fencing."""
    start_thread()
    job = worker_tasks.report_when_told.enqueue()
    gate.wait_entered()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET claim = claim + 1 WHERE id = %s", [job.id])
    gate.open()
    gate.wait_entered()  # it has reported
    after = tasks.sleep_for.enqueue(1.1)  # longer than the upkeep waits between two reports
    wait_until(lambda: get_job(after.id).status == "successful")
    assert get_job(job.id).progress is None


@pytest.mark.slow
def test_a_job_may_ask_whether_it_was_cancelled(start_thread: Start, gate: Gate) -> None:
    """For those that cannot be interrupted, or end themselves in good order."""
    start_thread()
    job = worker_tasks.wait_until_cancelled.enqueue()
    gate.wait_entered()
    assert cancel(job)
    wait_until(lambda: get_job(job.id).status != "running")
    assert get_job(job.id).result == ["saw it"]
