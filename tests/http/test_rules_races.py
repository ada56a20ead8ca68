"""Workers over HTTP and our own claim at once: no more of a key run than may."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_pgjobs.http import pool as pool_module
from django_pgjobs.http.looking import looks
from django_pgjobs.http.pool import pool
from django_pgjobs.models import Job
from django_pgjobs.queries import claims
from django_pgjobs.queries.connection import OwnConnection
from tests.factories import count_jobs, get_job, make_job, make_worker
from tests.http import tasks
from tests.http.support import Api, problem_of
from tests.http.workers import Remote, body_of
from tests.races.support import DjangoThread, open_transaction, wait_until_role_is_blocked
from tests.worker.keyed import keyed_claim
from tests.worker.support import ThreadedWorker, ids

pytestmark = [pytest.mark.race, pytest.mark.usefixtures("hold"), pytest.mark.slow]

CAP = 2


def unfinished() -> int:
    """Return how many jobs have not ended."""
    return count_jobs(status="ready") + count_jobs(status="running")


def most_at_once() -> dict[str, int]:
    """Return how many jobs of each key ran at a time at most, by the clock of the server.

    Who starts a job has seen the commit of the one that ended before.
    """
    events: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    for job in Job.objects.exclude(concurrency_key=None):
        assert job.status == "successful" and len(job.worker_ids) == 1, (job.id, job.status)
        events[job.concurrency_key] += [(job.last_attempted_at, 1), (job.finished_at, -1)]
    most = {}
    for key, found in events.items():
        running = highest = 0
        for _, change in sorted(found):
            running += change
            highest = max(highest, running)
        most[key] = highest
    return most


def work(secret: str | None, done: list[int], barrier: threading.Barrier) -> None:
    """Claim and finish until nothing is left."""
    worker = Remote(Api(secret))
    barrier.wait(15)
    while unfinished():
        given = worker.claim(3)
        results = [{"assignment": each["assignment"]} for each in given]
        if not results:
            looks.begin_anew()
            continue
        body = body_of(worker.api.post("results", {"results": results}))
        assert {each["status"] for each in body["results"]} == {"stored"}
        done += [int(each["job"]) for each in given]


def test_two_workers_over_http_race_for_the_places_of_keys(api: Api) -> None:
    jobs = [int(tasks.pack.enqueue(number % 3, number).id) for number in range(45)]
    done: list[int] = []
    barrier = threading.Barrier(2)
    threads = [DjangoThread(lambda: work(api.secret, done, barrier)) for _ in range(2)]
    for thread in threads:
        thread.result()
    assert sorted(done) == jobs
    assert set(most_at_once()) == {"pack:0", "pack:1", "pack:2"}
    assert max(most_at_once().values()) <= CAP


@pytest.fixture
def local(api: Api) -> Iterator[Callable[[], ThreadedWorker]]:
    """Start a worker of ours in a thread."""
    workers: list[ThreadedWorker] = []

    def start() -> ThreadedWorker:
        workers.append(ThreadedWorker(concurrency=4))
        workers[-1].start()
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def test_a_worker_of_ours_and_one_over_http_share_the_places_of_a_key(
    api: Api, local: Callable[[], ThreadedWorker]
) -> None:
    jobs = []
    for number in range(30):
        jobs.append(int(tasks.pack.enqueue(1, number).id))
        make_job(concurrency_key="pack:1", concurrency_limit=CAP)
    done: list[int] = []
    barrier = threading.Barrier(2)
    remote = DjangoThread(lambda: work(api.secret, done, barrier))
    local()
    barrier.wait(15)
    remote.result()
    assert sorted(done) == jobs
    assert most_at_once() == {"pack:1": CAP}
    assert count_jobs(status="successful", task_path="tests.tasks.add") == 30


@pytest.fixture
def own(api: Api) -> Iterator[OwnConnection]:
    """A connection as a worker of ours has."""
    connection = OwnConnection("default", "test")
    yield connection
    connection.close()


def test_while_a_worker_of_ours_claims_others_get_what_has_no_key(
    api: Api, own: OwnConnection
) -> None:
    """And the places that it takes are taken."""
    ours = make_job(concurrency_key="pack:1", concurrency_limit=CAP)
    jobs = [int(tasks.pack.enqueue(1, number).id) for number in range(3)]
    plain = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    with open_transaction(own) as end:
        leave = [tasks.pack.module_path, tasks.resize.module_path]
        assert ids(keyed_claim(own, make_worker(), passed_over_paths=leave)) == [ours]
        assert [int(each["job"]) for each in worker.claim(5)] == [plain]
        # It waits for its turn, though not for long.
        assert worker.claim(5) == []
        end("COMMIT")
    assert [int(each["job"]) for each in worker.claim(5)] == jobs[:1]


@pytest.fixture
def patient(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let statements of the API wait for a lock for longer than a test takes."""
    monkeypatch.setattr(pool_module, "LOCK_SECONDS", 60.0)
    pool.close()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("asks_by_id", [False, True])
def test_who_finds_a_claim_under_way_waits_for_its_turn(
    api: Api, own: OwnConnection, asks_by_id: bool
) -> None:
    first, second = (int(tasks.bill.enqueue(shop).id) for shop in (1, 2))
    worker = Remote(api)
    address = f"jobs/{second}/workers/{worker.id}" if asks_by_id else f"workers/{worker.id}/claim"
    with open_transaction(own) as end:
        assert ids(keyed_claim(own, make_worker(), 1)) == [first]
        asking = DjangoThread(lambda: body_of(api.post(address)))
        wait_until_role_is_blocked("http")
        end("COMMIT")
    answer = asking.result()
    [given] = [answer] if asks_by_id else answer["assignments"]
    assert (int(given["job"]), get_job(second).worker_id) == (second, worker.id)


def test_a_job_by_its_id_is_not_waited_for_for_long(api: Api, own: OwnConnection) -> None:
    job_id = int(tasks.bill.enqueue(1).id)
    worker = Remote(api)
    with open_transaction(own):
        own.round_trip([claims.send_hold])
        answer = api.post(f"jobs/{job_id}/workers/{worker.id}")
        assert (answer.status_code, problem_of(answer)) == (503, "unavailable")
        assert answer["Retry-After"] == "1"
    assert get_job(job_id).attempts == 0
    body_of(api.post(f"jobs/{job_id}/workers/{worker.id}"))


def test_one_assignment_is_reported_twice_at_the_same_time(api: Api) -> None:
    """S2.29: one of the two is stored, the other is told that it is over."""
    for _ in range(5):
        job_id = int(tasks.resize.enqueue(1).id)
        worker = Remote(api)
        looks.begin_anew()
        [given] = worker.claim()
        barrier = threading.Barrier(2)

        def say(
            number: int, given: dict[str, Any] = given, barrier: threading.Barrier = barrier
        ) -> str:
            barrier.wait(15)
            results = [{"assignment": given["assignment"], "result": number}]
            body = body_of(Api(api.secret).post("results", {"results": results}))
            return str(body["results"][0]["status"])

        threads = [DjangoThread(lambda n=number, say=say: say(n)) for number in range(2)]
        said = [thread.result() for thread in threads]
        assert sorted(said) == ["lost", "stored"]
        assert get_job(job_id).result == said.index("stored")
