"""An upgrade replaces the package on disk while workers run: they end their work on the old one.

Whatever a running worker needs of its own code, statements and catalogues, it has read by the
time it is ready.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import django_pgjobs
from tests import tasks as common
from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.helpers import ROOT, WorkerProcess
from tests.process import tasks
from tests.process.support import Journal, job_id, wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]


def garble(package: Path) -> None:
    """Fill every file with what is neither Python, SQL, a catalogue nor UTF-8."""
    for path in package.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff\xfe (")


@pytest.mark.parametrize("replace", [shutil.rmtree, garble])
def test_a_worker_needs_nothing_of_its_package_on_disk_once_it_is_ready(
    start: Callable[..., WorkerProcess],
    journal: Journal,
    tmp_path: Path,
    replace: Callable[[Path], None],
) -> None:
    package = tmp_path / "site" / "django_pgjobs"
    shutil.copytree(Path(django_pgjobs.__file__).parent, package)
    worker = start(
        "-c4",
        "--lease-seconds=3",
        env={"PYTHONPATH": f"{package.parent}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"},
    )
    replace(package)
    lost = make_running_job(make_worker(lease_seconds=-1), task_path="tests.tasks.add", args=[1, 2])
    cancelled = tasks.pass_gate.enqueue(journal.folder, "cancelled")
    journal.wait_for("start cancelled 1")
    assert get_job(cancelled.id).status == "running"
    django_pgjobs.cancel(cancelled)
    expected = {
        common.add.enqueue(1, 2).id: "successful",
        tasks.fail_secretly.using(max_attempts=2).enqueue("x").id: "failed",
        tasks.record_slowly.enqueue("atomic", 0.0).id: "successful",
        tasks.note_async.enqueue(journal.folder, "async").id: "successful",
        tasks.hold.enqueue(journal.folder, "key", 0.0).id: "successful",
        common.add.using(after=[cancelled], after_failure="run").enqueue(1, 1).id: "successful",
        str(job_id(make_job("tests.tasks.add", args=[1], max_attempts=1))): "failed",
        str(job_id(lost)): "successful",
        cancelled.id: "cancelled",
    }
    for job, status in expected.items():
        wait_for_status(int(job), status, worker=worker)
    assert get_job(job_id(lost)).lost_count == 1
    running = tasks.note.enqueue(journal.folder, "last", 1.0)
    journal.wait_for("last")
    assert worker.stop() == 0
    assert "Bye." in worker.output()
    wait_for_status(running, "successful")
    assert "crashed" not in worker.output()
