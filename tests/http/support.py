"""A client of the HTTP API in the process of the test."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse
from django.test import Client

from tests.http.described import check_described

BASE = "/pgjobs/api/v1/"


class Api:
    """Sends requests with the token *secret*: `api.post("workers", {"name": "n"})`."""

    def __init__(self, secret: str | None) -> None:
        self.secret = secret
        self.client = Client()
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
