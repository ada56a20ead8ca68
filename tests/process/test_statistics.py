"""What statistics still say of workers that were killed, and of those that ended in order."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from django_pgjobs import Task
from django_pgjobs.queries.statistics import MINUTE
from django_pgjobs.worker.running.tally import CLOSING_SECONDS, SPREAD_SECONDS
from tests import tasks as common
from tests.clients import tasks as remote
from tests.clients.web import WebProcesses
from tests.factories import make_token
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import Journal, fetch_rows, wait_for_count, wait_for_status
from tests.test_docs import read

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
# A minute that has just begun is written when it is over: this is for a busy machine.
MINUTES = 180.0

# The same of the jobs themselves: how each of their attempts ended.
ATTEMPTS = """
SELECT job.task_path, job.status, job.attempts, jsonb_array_length(job.errors)
FROM pgjobs_job AS job ORDER BY job.id
"""
COUNTED = """
SELECT task_path, sum(successful), sum(failed), sum(cancelled), sum(retried), sum(lost)
FROM pgjobs_statistic WHERE enqueued = 0 GROUP BY task_path ORDER BY task_path
"""


def counted() -> dict[str, tuple[int, ...]]:
    """Return what the statistics count of each task: successful, failed, cancelled, retried, lost.

    Enqueues, which the leader counts a minute late, are in rows of their own.
    """
    return {path.rpartition(".")[2]: tuple(map(int, sums)) for path, *sums in fetch_rows(COUNTED)}


@pytest.mark.time_limit(400)
def test_a_killed_worker_loses_what_it_counted_since_it_wrote_last(
    start: Start, journal: Journal
) -> None:
    """S1.15: no more, nothing twice, and its lost attempts are counted by who rescues them."""
    victim = start("--lease-seconds", "1", "-c", "2")
    common.add.enqueue_many([(1, 2)] * 30)
    wait_for_count(30, status="successful")
    wait_until(lambda: counted().get("add") == (30, 0, 0, 0, 0), timeout=MINUTES, message=counted)
    held = tasks.pass_gate.enqueue(journal.folder, "held")
    journal.wait_for("start held 1")
    common.add.enqueue_many([(1, 2)] * 20)
    wait_for_count(50, status="successful")
    victim.kill()
    left = counted()
    # Where a minute ended since, more than those of the first one were written.
    assert list(left) == ["add"]
    assert 30 <= left["add"][0] <= 50
    survivor = start("--lease-seconds", "1")
    journal.open_gate()
    wait_for_status(held, "successful", worker=survivor)
    common.add.enqueue_many([(1, 2)] * 7)
    wait_for_count(57, status="successful", task_path=common.add.module_path)
    assert survivor.stop() == 0
    assert counted() == {
        "add": (left["add"][0] + 7, 0, 0, 0, 0),
        "pass_gate": (1, 0, 0, 0, 1),
    }


class Client:
    """A program that works for one web server."""

    def __init__(self, web: WebProcesses) -> None:
        self._backend = web.backend
        self._token = make_token(verbs=["work"])

    def run(self, task: Task[..., Any], number: int) -> None:
        """Enqueue jobs of a task and report each as successful."""
        task.enqueue_many([()] * number)
        named = {"name": "client", "tasks": [task.module_path]}
        worker = self._ask("workers", named)["worker"]
        while number:
            claim = self._ask(f"workers/{worker}/claim", {"max_jobs": number})
            results = [{"assignment": each["assignment"]} for each in claim["assignments"]]
            if results:
                said = self._ask("results", {"results": results})["results"]
                assert {each["status"] for each in said} == {"stored"}
            number -= len(results)

    def _ask(self, address: str, body: Any) -> Any:
        with closing(http.client.HTTPConnection(self._backend, timeout=60)) as connection:
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            connection.request("POST", f"/pgjobs/api/v1/{address}", json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        assert answer.status < 300, text
        return json.loads(text)


@pytest.mark.time_limit(400)
def test_killed_web_processes_lose_what_they_counted_since_they_wrote_last() -> None:
    """S1.15: no more, nothing twice, and nothing of what others count."""
    with (
        closing(WebProcesses("gunicorn", pgjobs={})) as victim,
        closing(WebProcesses("gunicorn", pgjobs={})) as survivor,
    ):
        through_victim, through_survivor = Client(victim), Client(survivor)
        through_victim.run(remote.discard, 30)
        counts_of_first = {"discard": (30, 0, 0, 0, 0)}
        wait_until(lambda: counted() == counts_of_first, timeout=MINUTES, message=counted)
        through_survivor.run(remote.wait_and_see, 10)
        through_victim.run(remote.discard, 20)
        victim.kill()
        left = counted()["discard"][0]
        # Where a minute ended since, more than those of the first one were written.
        assert 30 <= left <= 50
        through_survivor.run(remote.wait_and_see, 7)
        through_survivor.run(remote.discard, 5)
        survivor.stop()
    assert counted() == {
        "discard": (left + 5, 0, 0, 0, 0),
        "wait_and_see": (17, 0, 0, 0, 0),
    }


@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_that_ends_in_order_loses_nothing(start: Start, processes: int) -> None:
    """S1.15: every attempt, however it ended, before any minute was over or after."""
    worker = start("--processes", str(processes), "-c", "4")
    common.add.enqueue_many([(1, 2)] * 200)
    common.add_async.enqueue_many([(1, 2)] * 50)
    common.record_atomic.enqueue_many([("a",), ("b",), ("c",)])
    common.fail.enqueue_many([()] * 4)
    common.fail_once.enqueue_many([()] * 5)
    wait_for_count(253, status="successful")
    wait_for_count(9, status="failed")
    assert worker.stop() == 0
    wanted: dict[str, tuple[int, ...]] = {}
    for path, status, attempts, errors in fetch_rows(ATTEMPTS):
        before = wanted.get(name := path.rpartition(".")[2], (0,) * 5)
        ended = (status == "successful", status == "failed", 0, attempts - 1, 0)
        assert errors == attempts - (status == "successful")
        wanted[name] = tuple(a + b for a, b in zip(before, ended, strict=True))
    assert counted() == wanted
    assert wanted["fail"] == (0, 4, 0, 8, 0)


def test_the_docs_say_how_much_a_killed_process_loses() -> None:
    """A minute, until nothing can come of it any more, and until the process has its turn."""
    most = MINUTE + CLOSING_SECONDS + SPREAD_SECONDS
    assert f"at most a minute and {most - MINUTE:.0f} seconds" in read("statistics.md")
