"""The helpers that start real workers: they run, talk, stop and leave nothing behind."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from tests import tasks
from tests.factories import count_jobs, get_job, make_job
from tests.helpers import WorkerProcess, connect, end_other_backends, wait_until
from tests.models import Effect
from tests.servers import PrivateCluster, is_alive

pytestmark = pytest.mark.process

Start = Callable[..., WorkerProcess]


def test_a_worker_runs_what_the_test_enqueues_and_stops_on_sigterm(
    start_worker: Start, tmp_path: Path
) -> None:
    worker = start_worker()
    job = tasks.touch.enqueue(str(tmp_path / "file"), "done by a worker")
    wait_until(lambda: get_job(job.id).status == "successful", message=worker.output)
    assert (tmp_path / "file").read_text() == "done by a worker\n"
    assert worker.stop(signal.SIGTERM) == 0, worker.output()


def test_settings_and_flags_reach_the_worker(start_worker: Start) -> None:
    job_id = make_job("tests.tasks.add", args=[2, 3], queue_name="other")
    worker = start_worker("--drain", "-q", "other", settings={"PGJOBS": {"LEASE_SECONDS": 7.0}})
    assert worker.wait() == 0, worker.output()
    assert get_job(job_id).result == 5
    with connection.cursor() as cursor:
        cursor.execute("SELECT lease_expires_at - heartbeat_at FROM pgjobs_worker")
        assert cursor.fetchone()[0].total_seconds() < 10


def test_a_worker_that_does_not_start_ends_with_its_message(start_worker: Start) -> None:
    worker = start_worker(settings={"PGJOBS": {"NO_SUCH_KEY": 1}})
    assert worker.wait() != 0
    assert "NO_SUCH_KEY" in worker.output()


def test_a_paused_worker_is_alive_and_dies_at_close(transactional_db: None) -> None:
    worker = WorkerProcess("--processes", "2")
    wait_until(lambda: len(worker.processes()) == 3, message=worker.output)
    pids = [process.pid for process in worker.processes()]
    worker.pause()
    assert worker.is_running
    worker.close()
    end_other_backends()
    assert not any(is_alive(pid) for pid in pids)


def test_children_that_outlive_their_supervisor_are_found(transactional_db: None) -> None:
    worker = WorkerProcess("--processes", "2")
    wait_until(lambda: len(worker.processes()) == 3, message=worker.output)
    worker.pause()
    worker.send(signal.SIGKILL)
    worker.wait()
    assert len(worker.processes()) == 2
    worker.close()
    assert worker.processes() == []
    end_other_backends()


def test_a_worker_follows_a_private_database(
    private_database: PrivateCluster, start_worker: Start
) -> None:
    tasks.record.enqueue("in the private one")
    assert start_worker("--drain").wait() == 0
    assert Effect.objects.get().key == "in the private one"
    with connect(private_database.url("pgjobs")) as client:
        assert client.execute("SELECT count(*) FROM tests_effect").fetchone() == (1,)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rows", [3, 500])
@pytest.mark.parametrize("again", [1, 2])
def test_tables_are_empty_at_the_beginning_whatever_the_last_test_left(
    rows: int, again: int
) -> None:
    assert count_jobs() == 0
    Effect.objects.bulk_create(Effect(key="x") for _ in range(rows))
    for _ in range(rows):
        make_job()
