"""Claims that wait for jobs: in a thread under WSGI, on the event loop under ASGI."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test import AsyncClient

from django_pgjobs.http import asking, looking, members
from django_pgjobs.http import waiting as module
from django_pgjobs.http.waiting import waiting
from django_pgjobs.queries.workers import set_listening
from tests.factories import get_job, get_worker
from tests.helpers import wait_until
from tests.http import tasks
from tests.http.support import BASE, ONLY_WSGI, Api, ApiClient
from tests.http.workers import Remote, body_of


def enqueued_by_another(number: int = 1) -> threading.Thread:
    """Enqueue a job once somebody waits and hears; return the thread that does."""

    def enqueue() -> None:
        try:
            wait_until(lambda: waiting.hears and len(waiting._waiters) == number)
            tasks.resize.enqueue(7)
        finally:
            connection.close()

    thread = threading.Thread(target=enqueue)
    thread.start()
    return thread


@pytest.fixture
def slow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look so rarely without a notification that a test would not end."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 600.0)


@ONLY_WSGI
def test_nobody_waits_where_a_server_has_one_thread(api: Api) -> None:
    """As gunicorn by default: heartbeats, and all pages of the site, would wait behind a claim."""
    api.has_threads = False
    worker = Remote(api)
    answer = body_of(worker.post("claim", {"wait": 25}))
    assert (answer["assignments"], answer["retry_after"]) == ([], 1.0)


@pytest.mark.usefixtures("slow_looks")
def test_a_claim_that_waits_is_woken_by_an_enqueue(api: Api) -> None:
    worker = Remote(api)
    thread = enqueued_by_another()
    [given] = worker.claim(wait=25)
    thread.join()
    assert given["args"] == [7]
    assert get_worker(worker.id).listening
    tasks.resize.enqueue(8)
    # It finds jobs by working: enqueues need not notify for its sake.
    assert len(worker.claim()) == 1
    assert not get_worker(worker.id).listening


def test_a_flag_that_another_process_took_back_is_set_again(api: Api) -> None:
    worker = Remote(api)
    worker.claim(wait=0.01)
    # Known here as one that listens ...
    worker.claim(wait=0.01)
    # ... when it has found jobs by another process.
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_worker SET listening = FALSE")
    worker.claim(wait=0.01)
    assert get_worker(worker.id).listening


def test_of_one_that_begins_to_wait_the_table_is_asked_again_and_of_no_other(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "KNOWN_SECONDS", 600.0)
    asked, find = [], members.find_member

    def noted(*args: Any) -> Any:
        asked.append(args[1])
        return find(*args)

    waits, works = Remote(api, "waits"), Remote(api, "works")
    works.claim()
    waits.claim(wait=0.01)
    monkeypatch.setattr(members, "find_member", noted)
    assert (waits.claim(), works.claim()) == ([], [])
    assert asked == [waits.id]


@pytest.mark.usefixtures("slow_looks")
def test_a_flag_that_a_heartbeat_kept_from_being_set_is_set_later(
    api: Api, monkeypatch: pytest.MonkeyPatch, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """A client that has just registered sends its first heartbeat and its first claim at once."""
    # Its subscription would wake the one that is to look by itself.
    Remote(api, "first").claim(wait=0.01)
    wait_until(lambda: waiting.hears)
    worker, other, tried = Remote(api), open_connection(), threading.Event()

    def noted(*args: Any, **kwargs: Any) -> Any:
        try:
            return set_listening(*args, **kwargs)
        finally:
            tried.set()

    monkeypatch.setattr(asking, "set_listening", noted)
    other.execute("BEGIN")
    other.execute("SELECT FROM pgjobs_worker WHERE id = %s FOR UPDATE", [worker.id])

    def enqueue() -> None:
        try:
            tried.wait()
            other.execute("COMMIT")
            wait_until(lambda: get_worker(worker.id).listening)
            tasks.resize.enqueue(7)
        finally:
            connection.close()

    thread = threading.Thread(target=enqueue)
    thread.start()
    [given] = worker.claim(wait=25)
    thread.join()
    assert given["args"] == [7]


@pytest.mark.usefixtures("slow_looks")
def test_a_goodbye_ends_the_wait_of_its_worker_alone(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under WSGI it would keep a thread, and one of few places, for nobody."""
    monkeypatch.setattr(asking, "MOST_SECONDS", 3600.0)
    leaving, staying = Remote(api, "leaving"), Remote(api, "staying")

    def leave() -> None:
        try:
            wait_until(lambda: waiting.hears and len(waiting._waiters) == 2)
            api.delete(f"workers/{leaving.id}")
            wait_until(lambda: len(waiting._waiters) == 1)
            tasks.resize.enqueue(7)
        finally:
            connection.close()

    async def claim_both() -> list[Any]:
        return await asyncio.gather(aclaim(leaving, 3600), aclaim(staying, 3600))

    thread = threading.Thread(target=leave)
    thread.start()
    nothing, [given] = asyncio.run(claim_both())
    thread.join()
    assert (nothing, given["args"]) == ([], [7])


def test_a_claim_waits_no_longer_than_asked_for(api: Api) -> None:
    assert Remote(api).claim(wait=0.01) == []
    assert not waiting._waiters


@ONLY_WSGI
def test_who_finds_no_place_to_wait_is_told_when_to_come_again(api: Api, settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_WAITING": 0}
    worker = Remote(api)
    body = body_of(worker.post("claim", {"wait": 25}))
    assert body == {"assignments": [], "retry_after": 1.0}
    tasks.resize.enqueue(1)
    assert len(worker.claim(wait=25)) == 1


def test_a_retry_that_comes_due_ends_the_wait(api: Api) -> None:
    tasks.convert.enqueue()
    worker = Remote(api)
    [given] = worker.claim()
    worker.say(given, "failure", {"error": {"type": "E"}, "retry_after": 0.05})
    [again] = worker.claim(wait=25)
    assert (again["job"], again["attempt"]) == (given["job"], 2)


@pytest.mark.usefixtures("slow_looks")
def test_a_key_that_is_free_ends_the_wait(api: Api) -> None:
    tasks.bill.enqueue(1, 1)
    tasks.bill.enqueue(1, 2)
    worker, another = Remote(api), Remote(api)
    [given] = worker.claim(5)

    def finish() -> None:
        try:
            wait_until(lambda: waiting.hears and bool(waiting._waiters))
            worker.finish(given)
        finally:
            connection.close()

    thread = threading.Thread(target=finish)
    thread.start()
    [second] = another.claim(wait=25)
    thread.join()
    assert second["args"] == [1, 2]


async def apost(worker: Remote, address: str, body: Any) -> dict[str, Any]:
    """Send something from the event loop of the test."""
    client = worker.api.client
    send = client.ageneric if isinstance(client, ApiClient) else AsyncClient().generic
    answer = await send(
        "POST",
        f"{BASE}{address}",
        json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {worker.api.secret}"},
    )
    return body_of(answer)


async def aclaim(worker: Remote, wait: float) -> list[dict[str, Any]]:
    """Claim on the event loop of the test."""
    return list((await apost(worker, f"workers/{worker.id}/claim", {"wait": wait}))["assignments"])


def test_on_an_event_loop_all_is_said_as_elsewhere(api: Api) -> None:
    ids = [int(tasks.resize.enqueue(number).id) for number in range(3)]
    worker = Remote(api)

    async def work() -> list[Any]:
        said: list[Any] = []
        for _ in ids:
            [given] = await aclaim(worker, 0)
            name = given["assignment"]
            address = f"workers/{worker.id}/heartbeat"
            said.append((await apost(worker, address, {"assignments": [name]}))["cancel"])
            if len(said) < 5:
                said.append(await apost(worker, f"assignments/{name}/result", {"result": 1}))
            else:
                body = await apost(worker, "results", {"results": [{"assignment": name}]})
                said.append({"status": body["results"][0]["status"]})
        return said

    assert asyncio.run(work()) == [[], {"status": "stored"}] * 3
    assert {get_job(job_id).status for job_id in ids} == {"successful"}


@pytest.mark.usefixtures("slow_looks")
def test_on_an_event_loop_many_wait_and_one_is_given_the_job(api: Api, settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_WAITING": 0}
    workers = [Remote(api, f"node-{number}") for number in range(5)]

    async def claim_all() -> list[list[dict[str, Any]]]:
        claims = [asyncio.ensure_future(aclaim(worker, 25)) for worker in workers]
        done, pending = await asyncio.wait(claims, return_when=asyncio.FIRST_COMPLETED)
        # The others go away; nothing is left of them.
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        return [each.result() for each in done]

    thread = enqueued_by_another(5)
    [[given]] = asyncio.run(claim_all())
    thread.join()
    assert given["args"] == [7]
    wait_until(lambda: not waiting._waiters)


@pytest.mark.usefixtures("slow_looks")
@pytest.mark.parametrize("steps", range(5))
def test_who_goes_away_as_it_is_woken_waits_no_longer(
    api: Api, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Its claim would be given the next job."""
    Remote(api, "first").claim(wait=0.01)
    wait_until(lambda: waiting.hears)
    worker, pauses, pause = Remote(api), [], asking.Wait.pause
    monkeypatch.setattr(asking.Wait, "pause", lambda wait: pauses.append(wait) or pause(wait))

    async def leave() -> bool:
        claim = asyncio.ensure_future(aclaim(worker, 2))
        while not pauses:
            await asyncio.sleep(0.001)
        waiting.tell()
        for _ in range(steps):
            await asyncio.sleep(0)
        claim.cancel()
        await asyncio.wait([claim])
        return claim.cancelled()

    assert asyncio.run(leave())


@pytest.mark.time_limit(30)
@pytest.mark.usefixtures("slow_looks")
def test_a_worker_that_is_gone_keeps_no_wake_up_for_itself(
    api: Api, monkeypatch: pytest.MonkeyPatch, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """Its client may have died long ago, and the claim still waits."""
    # The last look of a claim would find the job, too.
    monkeypatch.setattr(asking, "MOST_SECONDS", 3600.0)
    ended = open_connection()
    gone, alive = Remote(api, "gone"), Remote(api, "alive")

    async def claim_both() -> list[Any]:
        claims = [asyncio.ensure_future(aclaim(gone, 3600))]
        end = "UPDATE pgjobs_worker SET ended_at = now() WHERE id = %s AND listening"
        while not ended.execute(end, [gone.id]).rowcount:
            await asyncio.sleep(0.01)
        claims.append(asyncio.ensure_future(aclaim(alive, 3600)))
        return await asyncio.gather(*claims, return_exceptions=True)

    thread = enqueued_by_another(2)
    error, [given] = asyncio.run(claim_both())
    thread.join()
    assert "worker-gone" in str(error)
    assert given["args"] == [7]


@pytest.mark.usefixtures("slow_looks")
def test_one_that_finds_jobs_wakes_the_next(api: Api) -> None:
    workers = [Remote(api, f"node-{number}") for number in range(3)]

    async def claim_all() -> list[list[dict[str, Any]]]:
        return await asyncio.gather(*(aclaim(worker, 25) for worker in workers))

    def enqueue_all() -> None:
        try:
            wait_until(lambda: waiting.hears and len(waiting._waiters) == 3)
            # One statement notifies once.
            tasks.resize.enqueue_many([(1,), (2,), (3,)])
        finally:
            connection.close()

    thread = threading.Thread(target=enqueue_all)
    thread.start()
    given = asyncio.run(claim_all())
    thread.join()
    assert sorted(each["args"][0] for [each] in given) == [1, 2, 3]


@pytest.mark.django_db(transaction=True)
def test_nobody_listens_after_the_end_though_a_claim_still_waits() -> None:
    """Its client has gone; the database of the demo is about to stop."""
    waiter = module.Waiter(1, ("default",), frozenset(), lambda: None)
    waiting.enter(waiter)
    try:
        wait_until(lambda: waiting.hears)
        waiting.end()
        assert "pgjobs-http-listen" not in [thread.name for thread in threading.enumerate()]
        assert not waiting.hears
    finally:
        waiting.leave(waiter, passes_on=False)


def test_where_nobody_hears_all_look_more_often(
    api: Api, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "LISTEN": False}
    monkeypatch.setattr(module, "LOOK_SECONDS", 600.0)
    worker = Remote(api)

    def enqueue() -> None:
        try:
            wait_until(lambda: bool(waiting._waiters))
            tasks.resize.enqueue(7)
        finally:
            connection.close()

    thread = threading.Thread(target=enqueue)
    thread.start()
    assert len(worker.claim(wait=25)) == 1
    thread.join()
    assert not waiting.hears


def test_a_failure_that_is_retried_later_waits_for_no_look(api: Api, monkeypatch: Any) -> None:
    """The look may wait for the connection by which the failure is written."""
    looking_for, told = threading.Event(), threading.Event()
    answers = []

    def look() -> looking.LookResult:
        looking_for.set()
        answers.append(told.wait(10))
        return looking.LookResult(asked_at=time.monotonic())

    monkeypatch.setattr(looking, "_look", look)
    thread = threading.Thread(target=looking.looks.get, kwargs={"since": time.monotonic()})
    thread.start()
    looking_for.wait()
    looking.looks.expect(3600.0)
    told.set()
    thread.join()
    assert answers == [True]
    # It may have begun before the failure was written.
    assert looking.looks.last.due_at < math.inf
