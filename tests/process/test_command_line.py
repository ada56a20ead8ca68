"""`runjobs` as it is called: what it checks, what it says, how it exits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from django_pgjobs.management import banner
from django_pgjobs.queries.server import Server
from tests import tasks
from tests.factories import count_jobs, get_job, make_job, make_jobs
from tests.helpers import ROOT, WorkerProcess, database_url
from tests.process.support import fetch_rows
from tests.servers import PrivateCluster, free_port
from tests.worker.support import make_options

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

WRONG = {
    ("-c", "0"): "expected a whole number from 1 to 1000, got '0'.",
    ("--max-time", "nan"): "expected seconds from 0 to 1000000000, got 'nan'.",
    ("-q", "a,,b"): "expected queue names with commas between, got 'a,,b'.",
    ("-q", "a:0"): "expected a whole number from 1 to 100000, got '0'.",
    ("-q", "*:3"): "expected queues such as mail,billing:4 or billing:4,*, got '*:3'.",
    ("-q", "a", "--exclude-queues", "b"): "--queues and --exclude-queues contradict each other",
    ("--lease-seconds", "0.5"): "expected seconds from 1 to 86400, got '0.5'.",
    ("--poll-interval", "0"): "expected seconds from 0.05 to 3600, got '0'.",
    ("--log-format", "xml"): "invalid choice: 'xml'",
    ("--nonsense",): "unrecognized arguments: --nonsense",
}


def test_wrong_flags_end_with_2_and_say_what_was_expected(start: Start) -> None:
    workers = {flags: start(*flags, wait=False) for flags in WRONG}
    for flags, worker in workers.items():
        assert worker.wait() == 2, f"{flags}: {worker.output()}"
        assert WRONG[flags] in worker.output()
        assert "Traceback" not in worker.output()


def test_check_looks_and_touches_nothing(start: Start) -> None:
    make_job()
    worker = start("--check", "--processes", "2", "-c", "3")
    assert worker.wait() == 0
    assert "queues  all (2 x 3 threads)" in worker.output()
    assert count_jobs(status="ready", attempts=0) == 1
    assert fetch_rows("SELECT FROM pgjobs_worker") == []


def warnings_of(worker: WorkerProcess) -> list[str]:
    return [line for line in worker.output().splitlines() if line.startswith("WARNING")]


@pytest.mark.usefixtures("limits_of_all_tasks")
def test_a_queue_that_nothing_uses_is_warned_about(start: Start) -> None:
    make_job(queue_name="waiting")
    worker = start("--check", "-q", "mail,waiting,malle")
    assert worker.wait() == 0
    assert warnings_of(worker) == [
        "WARNING no task and no waiting job uses the queue 'malle'. Is it spelt right?"
    ]


def test_a_queue_of_remote_tasks_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs would wait beside an idle worker that serves the queue."""
    monkeypatch.setattr(banner, "remote_queues", lambda: ["labels"])
    server = Server("18.1", "shop", True, ["labels"], 100)
    assert list(banner.warnings_of(make_options(queues=("labels", "pgjobs")), server, 1)) == [
        "all tasks of the queue 'labels' are remote: workers over HTTP run them, this one does not."
    ]
    assert list(banner.warnings_of(make_options(), server, 1)) == []


@pytest.mark.usefixtures("limits_of_all_tasks")
@pytest.mark.parametrize("flags", [("--check",), ("--drain", "--processes", "2")], ids=" ".join)
def test_to_leave_out_the_queue_of_bulk_changes_is_warned_about(
    start: Start, flags: tuple[str, ...]
) -> None:
    worker = start(*flags, "--exclude-queues", "mail,pgjobs")
    assert worker.wait() == 0
    assert warnings_of(worker) == [
        (
            "WARNING --exclude-queues leaves out 'pgjobs', the queue of bulk changes: they wait "
            "until another worker serves it."
        )
    ]
    worker = start(*flags, "--exclude-queues", "mail")
    assert worker.wait() == 0
    assert warnings_of(worker) == []


@pytest.mark.parametrize("flags", [(), ("--processes", "2"), ("--check",)], ids=" ".join)
def test_without_a_database_it_ends_with_3(start: Start, flags: tuple[str, ...]) -> None:
    nowhere = database_url(HOST="127.0.0.1", PORT=free_port())
    worker = start(*flags, database=nowhere)
    assert worker.wait() == 3
    assert "the database 'default' cannot be reached: " in worker.output()
    assert "Traceback" not in worker.output()


@pytest.mark.parametrize("words", [("list",), ("stuck", "--fail"), ("cancel", "7")], ids=" ".join)
def test_without_a_database_jobs_ends_with_3_and_one_line(words: tuple[str, ...]) -> None:
    """A monitor can tell it from a job that looks stuck, which is 1."""
    nowhere = database_url(HOST="127.0.0.1", PORT=free_port())
    settings = {"DATABASE_URL": nowhere, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    ended = subprocess.run(
        [sys.executable, "-m", "django", "jobs", *words],
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr.startswith("CommandError: the database 'default' cannot be reached: ")
    assert ended.stderr.count("\n") == 1


def test_without_the_tables_it_ends_with_3_and_names_the_remedy(
    start: Start, private_cluster: PrivateCluster
) -> None:
    private_cluster.create_database("empty")
    worker = start(database=private_cluster.url("empty"))
    assert worker.wait() == 3
    assert "has no table pgjobs_job. Run manage.py migrate first." in worker.output()


def test_wrong_settings_are_named_before_anything_runs(start: Start) -> None:
    make_job()
    worker = start(pgjobs={"LEASE_SECOND": 10})
    assert worker.wait() == 1
    assert "Did you mean LEASE_SECONDS?" in worker.output()
    assert count_jobs(status="ready") == 1


def test_what_it_says_first_names_versions_queues_and_tasks(start: Start) -> None:
    worker = start("--exclude-queues", "mail", "-c", "2", "--poll-interval", "3")
    said = worker.output()
    for words in (
        "django-pgjobs ",
        "PostgreSQL ",
        "queues  all but mail (1 x 2 threads)",
        "listen  on (poll at most every 3 s)",
        " found",
    ):
        assert words in said
    quiet = start("-v", "0", "--max-time", "0")
    assert quiet.wait() == 0
    assert quiet.output() == ""


def test_a_queue_may_take_few_of_the_slots(start: Start) -> None:
    """S1.19; issue of slots: a worker serves all queues, one of them with a slot only."""
    worker = start("--check", "-q", "mail:1,*")
    assert worker.wait() == 0
    assert "queues  all, mail at most 1 (" in worker.output()


def test_the_slots_of_queues_reach_the_child_processes(start: Start) -> None:
    make_jobs(2)
    worker = start("--drain", "--processes", "2", "-q", "default:1,mail")
    assert worker.wait() == 0
    assert count_jobs(status="successful") == 2


def test_the_garbage_collector_leaves_alone_what_a_worker_has_loaded(start: Start) -> None:
    """To look through all of Django stops all threads, again and again, for 50 ms or more."""
    job = tasks.count_frozen.enqueue()
    assert start("--drain").wait() == 0
    assert get_job(job.id).result > 50_000
