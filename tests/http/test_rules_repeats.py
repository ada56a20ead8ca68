"""What other transactions cross is sent again: nothing is lost by it, and nothing happens twice.

The server itself raises what it raises then, in a trigger, as often as a test wants.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.http import HttpResponse

from django_pgjobs.http import pool as pool_module
from django_pgjobs.http import reporting
from django_pgjobs.http.looking import looks
from django_pgjobs.http.pool import TRIES, borrowed, turn
from django_pgjobs.http.station import station
from django_pgjobs.models import Statistic
from django_pgjobs.signals import task_finished
from tests.factories import get_job, get_worker
from tests.http import tasks
from tests.http.support import Api, problem_of
from tests.http.workers import Remote, body_of

pytestmark = pytest.mark.usefixtures("hold")

# A sequence counts also what is rolled back.
CROSSING = """
CREATE SEQUENCE crossings;
CREATE FUNCTION cross_others() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.crossings') <= {times} THEN
        RAISE EXCEPTION 'others came in between' USING ERRCODE = '{code}';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER cross_others BEFORE UPDATE ON {table}
    FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION cross_others();
"""
UNCROSSING = """
DROP FUNCTION cross_others CASCADE;
DROP SEQUENCE crossings;
"""
JOBS, WORKERS = "pgjobs_job_live", "pgjobs_worker"
SERIALIZATION, DEADLOCK = "40001", "40P01"
ALWAYS = 1_000_000


@contextlib.contextmanager
def crossed(
    times: int, table: str, *, when: str = "TRUE", code: str = SERIALIZATION
) -> Iterator[Callable[[], int]]:
    """Let updates be crossed so often; gives how often it has happened."""
    with connection.cursor() as cursor:
        cursor.execute(CROSSING.format(times=times, table=table, when=when, code=code))

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT last_value, is_called FROM crossings")
            last, is_called = cursor.fetchone()
        return min(times, last) if is_called else 0

    try:
        yield count
    finally:
        with connection.cursor() as cursor:
            cursor.execute(UNCROSSING)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send again at once."""
    for module in (pool_module, reporting):
        monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)


def refused(answer: HttpResponse) -> bool:
    """Is it a 503 that says when to come again?"""
    assert problem_of(answer) == "unavailable"
    return answer.status_code == 503 and int(answer["Retry-After"]) >= 1


CODES = pytest.mark.parametrize("code", [SERIALIZATION, DEADLOCK])


@CODES
def test_a_heartbeat_that_is_crossed_is_sent_again(api: Api, code: str) -> None:
    tasks.resize.enqueue(1)
    worker = Remote(api)
    [given] = worker.claim()
    with crossed(TRIES - 1, WORKERS, code=code) as count:
        assert worker.beat(given)["cancel"] == []
        assert count() == TRIES - 1
    before = get_worker(worker.id).lease_expires_at
    with crossed(ALWAYS, WORKERS, code=code) as count:
        assert refused(worker.post("heartbeat", {"assignments": []}))
        assert count() == TRIES
    assert get_worker(worker.id).lease_expires_at == before
    assert worker.beat(given)["cancel"] == []


@CODES
@pytest.mark.parametrize("task", [tasks.resize, tasks.bill], ids=["plain", "keyed"])
def test_a_claim_that_is_crossed_gives_each_job_once(api: Api, task: Any, code: str) -> None:
    jobs = [int(task.enqueue(number).id) for number in range(3)]
    worker = Remote(api)
    with crossed(3, JOBS, code=code) as count:
        given = worker.claim(5)
        assert count() == 3
    assert sorted(int(each["job"]) for each in given) == jobs
    for job_id in jobs:
        job = get_job(job_id)
        assert (job.attempts, job.worker_ids) == (1, ["node"])
    assert worker.claim(5, held=[each["assignment"] for each in given]) == []


def test_a_claim_that_is_always_crossed_takes_nothing(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    with crossed(ALWAYS, JOBS) as count:
        assert refused(worker.post("claim"))
        assert count() == TRIES
    job = get_job(job_id)
    assert (job.status, job.attempts, job.claim, job.worker_id) == ("ready", 0, 0, None)
    assert len(worker.claim()) == 1


@pytest.mark.slow
def test_a_claim_by_id_that_is_crossed_is_sent_again(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    address = f"jobs/{job_id}/workers/{worker.id}"
    with crossed(ALWAYS, JOBS):
        assert refused(api.post(address))
    with crossed(3, JOBS) as count:
        given = body_of(api.post(address))
        assert count() == 3
    assert (given["attempt"], get_job(job_id).attempts) == (1, 1)


@CODES
def test_outcomes_that_are_crossed_are_stored_once(api: Api, code: str) -> None:
    """With what waits for them."""
    first, second, third = (tasks.convert.enqueue(str(number)) for number in range(3))
    behind = int(tasks.resize.using(after=[first, second]).enqueue(1).id)
    worker = Remote(api)
    given = worker.claim(5)
    names = [each["assignment"] for each in given]
    results = [
        {"assignment": names[0], "result": 1},
        {"assignment": names[1], "error": {"type": "E"}, "retry": False},
        {"assignment": names[2], "release": True},
    ]
    with crossed(3, JOBS, when="OLD.status = 'running'", code=code) as count:
        body = body_of(api.post("results", {"results": results}))
        assert count() == 3
    assert [each["status"] for each in body["results"]] == ["stored", "failed", "released"]
    jobs = [get_job(each.id) for each in (first, second, third)]
    assert [job.status for job in jobs] == ["successful", "failed", "ready"]
    assert [len(job.errors or []) for job in jobs] == [0, 1, 0]
    assert get_job(behind).status == "cancelled"
    again = body_of(api.post("results", {"results": results}))
    assert {each["status"] for each in again["results"]} == {"lost"}


def test_an_outcome_that_is_always_crossed_is_said_again_later(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    with crossed(ALWAYS, JOBS) as count:
        assert refused(worker.say(given, "result", {"result": 1}))
        assert count() >= 3
    job = get_job(job_id)
    assert (job.status, job.worker_id) == ("running", worker.id)
    assert worker.finish(given, 1) == {"status": "stored"}
    assert (get_job(job_id).status, get_job(job_id).result) == ("successful", 1)


def test_of_many_outcomes_one_that_is_always_crossed_is_said_again_alone(api: Api) -> None:
    crossing, other = (int(tasks.resize.enqueue(number).id) for number in range(2))
    worker = Remote(api)
    given = worker.claim(5)
    results = [{"assignment": each["assignment"], "result": 1} for each in given]
    with crossed(ALWAYS, JOBS, when=f"OLD.id = {crossing}"):
        answer = api.post("results", {"results": results})
    assert [each["status"] for each in body_of(answer)["results"]] == ["later", "stored"]
    again = body_of(api.post("results", {"results": results}))["results"]
    assert again[0]["status"] == "stored"
    assert {get_job(each).status for each in (crossing, other)} == {"successful"}


def test_a_goodbye_that_is_crossed_gives_everything_back(api: Api) -> None:
    jobs = [int(tasks.resize.enqueue(number).id) for number in range(3)]
    worker = Remote(api)
    worker.claim(5)
    with crossed(3, JOBS) as count:
        assert api.delete(f"workers/{worker.id}").status_code == 204
        assert count() == 3
    for job in map(get_job, jobs):
        assert (job.status, job.attempts, job.worker_id) == ("ready", 0, None)


def test_progress_that_is_crossed_is_written(api: Api) -> None:
    tasks.resize.enqueue(1)
    worker = Remote(api)
    [given] = worker.claim()
    with crossed(3, JOBS):
        body = body_of(worker.say(given, "progress", {"progress": {"done": 3}}))
    assert body == {"status": "stored"}
    assert get_job(int(given["job"])).progress["done"] == 3


def test_a_look_that_is_crossed_lets_go_what_is_due(api: Api) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job_live SET due_at = now() WHERE id = %s", [job_id])
    worker = Remote(api)
    with crossed(3, JOBS, when="OLD.due_at IS NOT NULL") as count:
        assert [int(each["job"]) for each in worker.claim()] == [job_id]
        assert count() == 3


# Connections


def test_what_is_not_crossed_is_sent_once(api: Api) -> None:
    """Another error of the server, for one, would be the same again."""
    sent = []

    def divide(cursor: Any) -> None:
        sent.append(1)
        cursor.execute("SELECT 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        turn([divide])
    assert sent == [1]


class Breaks:
    """Lets the next sends of own connections break: before they run, or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
        self.left = 0
        original = pool_module.OwnConnection.round_trip

        def round_trip(own: Any, sends: Any) -> Any:
            if self.left <= 0:
                return original(own, sends)
            self.left -= 1
            if after:
                original(own, sends)
            own.close()
            raise psycopg.OperationalError("the connection was lost")

        monkeypatch.setattr(pool_module.OwnConnection, "round_trip", round_trip)


@pytest.fixture
def finished() -> Iterator[list[str]]:
    """The ids of the jobs that receivers were told of."""
    told: list[str] = []

    def receive(task_result: Any, **kwargs: Any) -> None:
        told.append(task_result.id)

    task_finished.connect(receive)
    yield told
    task_finished.disconnect(receive)


@pytest.mark.parametrize("after", [False, True], ids=["not sent", "answer lost"])
def test_an_outcome_outlives_one_loss_of_the_connection(
    api: Api, monkeypatch: pytest.MonkeyPatch, finished: list[str], after: bool
) -> None:
    """It is sent once more; what was stored without an answer is told of once, and not counted."""
    job_id = int(tasks.resize.enqueue(1).id)
    behind = int(tasks.resize.using(after=[job_id]).enqueue(2).id)
    worker = Remote(api)
    [given] = worker.claim()
    [assigned] = [given["assignment"]]
    reading = reporting.deliver
    breaks = Breaks(monkeypatch, after=after)

    def deliver(entries: Any) -> Any:
        breaks.left = 1
        return reading(entries)

    monkeypatch.setattr("django_pgjobs.http.outcomes.deliver", deliver)
    body = body_of(api.post("results", {"results": [{"assignment": assigned, "result": 5}]}))
    # What the server had done when the answer was lost is over for who says it again.
    assert body["results"][0]["status"] == ("lost" if after else "stored")
    job = get_job(job_id)
    assert (job.status, job.result, job.attempts) == ("successful", 5, 1)
    station.end()
    assert finished == [str(job_id)]
    assert [row.successful for row in Statistic.objects.all()] == [1] * (not after)
    looks.begin_anew()
    assert [int(each["job"]) for each in worker.claim(5)] == [behind]


def test_an_outcome_that_was_crossed_outlives_the_loss_of_the_connection(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    troubles: list[psycopg.Error] = [
        psycopg.errors.SerializationFailure("others came in between"),
        psycopg.OperationalError("the connection was lost"),
    ]
    original = pool_module.OwnConnection.round_trip

    def round_trip(own: Any, sends: Any) -> Any:
        if troubles:
            raise troubles.pop(0)
        return original(own, sends)

    monkeypatch.setattr(pool_module.OwnConnection, "round_trip", round_trip)
    assert worker.finish(given, 5) == {"status": "stored"}
    assert (troubles, get_job(job_id).result) == ([], 5)


def test_an_outcome_that_finds_no_server_twice_is_not_stored(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = int(tasks.resize.enqueue(1).id)
    worker = Remote(api)
    [given] = worker.claim()
    reading = reporting.deliver
    breaks = Breaks(monkeypatch, after=False)

    def deliver(entries: Any) -> Any:
        breaks.left = 2
        return reading(entries)

    monkeypatch.setattr("django_pgjobs.http.outcomes.deliver", deliver)
    assert refused(worker.say(given, "result", {"result": 5}))
    assert breaks.left == 0
    assert get_job(job_id).status == "running"
    monkeypatch.setattr("django_pgjobs.http.outcomes.deliver", reading)
    assert worker.finish(given, 5) == {"status": "stored"}


def test_connections_go_back_whatever_happened_on_them(
    api: Api, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Also where one cannot even be made."""
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_CONNECTIONS": 1}
    monkeypatch.setattr(pool_module, "PATIENCE_SECONDS", 0.0)
    pool_module.pool.close()

    class Trouble(Exception):
        pass

    def broken(*_: Any, **__: Any) -> Any:
        raise Trouble

    with monkeypatch.context() as patch:
        patch.setattr(pool_module, "OwnConnection", broken)
        with pytest.raises(Trouble), borrowed():
            pass
    with pytest.raises(Trouble), borrowed():
        raise Trouble
    assert Remote(api).claim() == []
