"""A client of the HTTP API in the process of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpResponse
from django.test import AsyncRequestFactory, Client

from django_pgjobs.http.asgi import with_api
from tests.http.described import check_described

BASE = "/pgjobs/api/v1/"

ONLY_WSGI = pytest.mark.parametrize("api", ["wsgi"], indirect=True)


async def asked(request: Any) -> HttpResponse:
    """Return the answer of the application that `with_api` makes to what a factory has made."""
    messages = [{"type": "http.request", "body": request.read()}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError("nothing comes behind the body")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await with_api(ASGIHandler())(request.scope, receive, send)
    start, *bodies = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    # As servers do.
    content = b"" if request.method == "HEAD" else b"".join(each["body"] for each in bodies)
    answer = HttpResponse(content, status=start["status"], headers=headers)
    if "Content-Type" not in headers:
        del answer["Content-Type"]
    return answer


class ApiClient:
    """A client of that application; each request has an event loop of its own."""

    def generic(
        self, *args: Any, headers: dict[str, str], content_type: str, **environ: Any
    ) -> HttpResponse:
        """Return the answer; *environ* is for WSGI."""
        return asyncio.run(self.ageneric(*args, headers=headers, content_type=content_type))

    async def ageneric(self, *args: Any, **options: Any) -> HttpResponse:
        """Return the answer, on the event loop of the test."""
        return await asked(AsyncRequestFactory().generic(*args, **options))


class Api:
    """Sends requests with the token *secret*: `api.post("workers", {"name": "n"})`."""

    make_client: Callable[[], Any] = Client

    def __init__(self, secret: str | None) -> None:
        self.secret = secret
        self.client = self.make_client()
        # Does the server have several threads?
        self.has_threads = True

    def send(
        self, method: str, address: str, body: Any = None, *, base: str = BASE, **headers: str
    ) -> HttpResponse:
        """Return the answer; *body* is JSON, or bytes that are sent as they are.

        It is one that `openapi.json` describes.
        """
        if self.secret is not None:
            headers.setdefault("Authorization", f"Bearer {self.secret}")
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body)
        answer = self.client.generic(
            method,
            base + address,
            content,
            content_type=headers.pop("Content_Type", "application/json"),
            headers=headers,
            **{"wsgi.multithread": self.has_threads},
        )
        if base == BASE:
            check_described(method, address, answer)
        return answer

    def get(self, address: str, **headers: str) -> HttpResponse:
        """GET."""
        return self.send("GET", address, **headers)

    def post(self, address: str, body: Any = None, **headers: str) -> HttpResponse:
        """POST an object."""
        return self.send("POST", address, {} if body is None else body, **headers)

    def delete(self, address: str, **headers: str) -> HttpResponse:
        """DELETE."""
        return self.send("DELETE", address, **headers)


def problem_of(answer: HttpResponse) -> str:
    """Return the last part of the type of a problem, and see that it is one."""
    assert answer["Content-Type"] == "application/problem+json", answer.content
    body = json.loads(answer.content)
    assert body["status"] == answer.status_code
    return str(body["type"].removeprefix("urn:pgjobs:problem:"))
