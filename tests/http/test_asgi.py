"""The application that answers the API itself: what is its own, and not that of the views."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any
from weakref import ref

import pytest
from django.db import connection, connections
from django.test import AsyncRequestFactory

from django_pgjobs.conf import get_conf
from django_pgjobs.http import access, asgi, threads
from django_pgjobs.http.access import known_tokens
from django_pgjobs.http.asgi import with_api
from django_pgjobs.http.problems import Problem
from django_pgjobs.http.waiting import waiting
from tests.factories import get_job
from tests.helpers import WAIT_SECONDS, wait_until
from tests.http import tasks
from tests.http.support import BASE, Api, problem_of
from tests.http.workers import Remote, body_of

pytestmark = pytest.mark.parametrize("api", ["with_api"], indirect=True)

Scope = dict[str, Any]
DISCONNECT = {"type": "http.disconnect"}


async def others(scope: Scope, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
    """Answer what is not for the API."""
    await send({"type": "others", "path": scope.get("path")})


def sent_for(scope: Scope, messages: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return what is sent for a request of which a server receives these messages."""
    left, sent = list(messages), []

    async def receive() -> dict[str, Any]:
        return left.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(with_api(others)(scope, receive, send))
    assert not left
    return sent


def scope_of(api: Api, method: str, address: str, **options: Any) -> Scope:
    """Return the scope of a request."""
    headers = {"Authorization": f"Bearer {api.secret}"}
    request = AsyncRequestFactory().generic(
        method, address, b"{}", content_type="application/json", headers=headers
    )
    return {**request.scope, **options}


@pytest.mark.parametrize("path", ["/", "/pgjobs/", "/nothing"])
def test_what_is_not_for_the_api_is_left_to_others(api: Api, path: str) -> None:
    assert sent_for(scope_of(api, "GET", path)) == [{"type": "others", "path": path}]


@pytest.mark.parametrize(
    "options",
    [{"type": "lifespan"}, {"type": "websocket", "path": BASE}, {"query_string": b"\xff"}],
    ids=str,
)
def test_what_is_no_request_is_left_to_others(api: Api, options: Scope) -> None:
    [message] = sent_for(scope_of(api, "GET", f"{BASE}token", **options))
    assert message["type"] == "others"


def test_the_api_may_be_below_another_path(api: Api) -> None:
    """As where a server mounts the application."""
    scope = scope_of(api, "GET", f"/shop{BASE}token", root_path="/shop")
    assert sent_for(scope, [{"type": "http.request"}])[0]["status"] == 200
    scope["root_path"] = ""
    assert sent_for(scope)[0]["type"] == "others"


def test_an_address_of_the_api_that_is_not_there_is_its_own_problem(api: Api) -> None:
    assert problem_of(api.get("nothing")) == "not-found"
    assert problem_of(api.send("GET", "", base="/pgjobs/api/v2/")) == "not-found"


def test_of_a_body_that_is_too_large_little_is_kept(
    api: Api, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "HTTP_MAX_BODY_BYTES": 1024}
    bodies: list[BytesIO] = []

    class Kept(BytesIO):
        def __init__(self) -> None:
            super().__init__()
            bodies.append(self)

    monkeypatch.setattr(asgi, "BytesIO", Kept)
    chunk = {"type": "http.request", "body": b" " * 1000, "more_body": True}
    scope = scope_of(api, "POST", f"{BASE}results")
    sent = sent_for(scope, [*[chunk] * 50, {"type": "http.request"}])
    assert sent[0]["status"] == 413
    assert len(bodies[0].getvalue()) <= 2000


def test_a_body_may_come_in_pieces(api: Api) -> None:
    pieces = [b'{"resu', b'lts"', b": []}"]
    messages = [{"type": "http.request", "body": each, "more_body": True} for each in pieces]
    sent = sent_for(scope_of(api, "POST", f"{BASE}results"), [*messages, {"type": "http.request"}])
    assert (sent[0]["status"], sent[1]["body"]) == (200, b'{"results":[]}')


def test_a_client_that_goes_away_amid_its_body_gets_no_answer(api: Api) -> None:
    message = {"type": "http.request", "body": b"{", "more_body": True}
    assert sent_for(scope_of(api, "POST", f"{BASE}results"), [message, DISCONNECT]) == []


def test_a_client_that_goes_away_while_it_waits_is_given_no_job(api: Api) -> None:
    worker = Remote(api)
    scope = scope_of(api, "POST", f"{BASE}workers/{worker.id}/claim")
    sent: list[Any] = []

    async def claim() -> None:
        messages = [{"type": "http.request", "body": b'{"wait": 25}'}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await asyncio.to_thread(wait_until, lambda: bool(waiting._waiters))
            return DISCONNECT

        async def send(message: Any) -> None:
            sent.append(message)

        await with_api(others)(scope, receive, send)

    asyncio.run(claim())
    assert sent == []
    wait_until(lambda: not waiting._waiters)
    assert get_job(int(tasks.resize.enqueue(1).id)).status == "ready"


def test_a_request_that_no_thread_has_time_for_is_told_to_come_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "PATIENCE_SECONDS", 0.05)
    are_answered = threading.Event()

    async def ask() -> tuple[Any, Any]:
        busy = [
            asyncio.ensure_future(threads.in_thread(are_answered.wait))
            for _ in range(get_conf().HTTP_MAX_CONNECTIONS)
        ]
        await asyncio.sleep(0)  # they are handed over
        answers = [await api.client.ageneric(*each, **options) for each in addresses]
        are_answered.set()
        await asyncio.gather(*busy)
        return answers[0], answers[1]

    worker = Remote(api)
    headers = {"Authorization": f"Bearer {api.secret}"}
    options = {"content_type": "application/json", "headers": headers}
    claim = f"{BASE}workers/{worker.id}/claim"
    addresses = [("POST", f"{BASE}results", b"{}"), ("POST", claim, b"{}")]
    for answer in asyncio.run(ask()):
        assert problem_of(answer) == "unavailable"
        assert answer["Retry-After"] == "1"


def test_tokens_are_looked_up_side_by_side(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """In threads of ours: the only one that Django has here would look up one after the other."""
    worker = Remote(api)
    are_looked_up, look_up = threading.Barrier(2), access.get_token

    def looked_up(cursor: Any, digest: str) -> Any:
        are_looked_up.wait(WAIT_SECONDS)
        return look_up(cursor, digest)

    async def claim_both() -> list[Any]:
        return await asyncio.gather(
            *(
                api.client.ageneric(
                    "POST",
                    f"{BASE}workers/{worker.id}/claim",
                    b"{}",
                    content_type="application/json",
                    headers={"Authorization": f"Bearer {secret}"},
                )
                for secret in (api.secret, f"pgj_{0:043}")
            )
        )

    known_tokens.forget()
    monkeypatch.setattr(access, "get_token", looked_up)
    answer, refusal = asyncio.run(claim_both())
    assert body_of(answer) == {"assignments": []}
    assert problem_of(refusal) == "unauthorized"


@pytest.mark.slow
def test_a_request_that_waits_for_a_thread_in_vain_is_not_kept(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a database is frozen, many come and go before a thread is free: each has a body."""
    is_answered, kept = threading.Event(), []
    all_threads = threading.Barrier(get_conf().HTTP_MAX_CONNECTIONS + 1)

    class Body(BytesIO):
        pass

    def keep_busy() -> None:
        all_threads.wait(WAIT_SECONDS)
        is_answered.wait(WAIT_SECONDS)

    async def ask() -> None:
        busy = [
            asyncio.ensure_future(threads.in_thread(keep_busy))
            for _ in range(get_conf().HTTP_MAX_CONNECTIONS)
        ]
        await asyncio.to_thread(all_threads.wait, WAIT_SECONDS)
        monkeypatch.setattr(threads, "PATIENCE_SECONDS", 0.05)
        body = Body()
        kept.append(ref(body))
        with pytest.raises(Problem):
            await threads.in_thread(body.read)
        del body
        gc.collect()
        kept.append(kept[0]())
        is_answered.set()
        await asyncio.gather(*busy)

    asyncio.run(ask())
    assert kept[1] is None


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_thread_keeps_its_connections_as_long_as_django_does(
    api: Api, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """With a pool of Django's they go back to it."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", seconds)

    def session() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])

    async def ask() -> bool:
        return await threads.in_thread(session) == await threads.in_thread(session)

    with ThreadPoolExecutor(1) as thread:
        monkeypatch.setattr(threads, "_threads", lambda: thread)
        assert asyncio.run(ask()) is bool(seconds)
        thread.submit(connections.close_all).result()


def test_the_description_tells_its_length(api: Api) -> None:
    answer = api.get("openapi.json")
    assert answer["Content-Length"] == str(len(answer.content))
