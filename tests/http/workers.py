"""A worker over HTTP in the process of a test."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse

from tests.http.support import Api


class Remote:
    """Registers at once; the methods return the bodies of answers that are no errors."""

    def __init__(self, api: Api, name: str = "node", **options: Any) -> None:
        self.api = api
        body = body_of(api.post("workers", {"name": name, **options}), 201)
        self.id = int(body["worker"])

    def post(self, address: str, body: Any = None) -> HttpResponse:
        """Send something to an address of the worker."""
        return self.api.post(f"workers/{self.id}/{address}", body)

    def send(self, address: str, body: bytes) -> HttpResponse:
        """Send bytes as they are to an address of the worker."""
        return self.api.send("POST", f"workers/{self.id}/{address}", body)

    def claim(self, max_jobs: int = 1, **options: Any) -> list[dict[str, Any]]:
        """Claim."""
        answer = self.post("claim", {"max_jobs": max_jobs, **options})
        return list(body_of(answer)["assignments"])

    def beat(self, *given: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Send a heartbeat that names what was *given*."""
        names = [each["assignment"] for each in given]
        return body_of(self.post("heartbeat", {"assignments": names, **options}))

    def say(self, given: dict[str, Any], what: str, body: Any = None) -> HttpResponse:
        """Say what became of an assignment."""
        return self.api.post(f"assignments/{given['assignment']}/{what}", body)

    def finish(self, given: dict[str, Any], result: Any = None) -> dict[str, Any]:
        """Send the result of an assignment."""
        return body_of(self.say(given, "result", {"result": result}))


def body_of(answer: HttpResponse, status: int = 200) -> dict[str, Any]:
    """Return the body of an answer with that status."""
    assert answer.status_code == status, answer.content
    body: dict[str, Any] = json.loads(answer.content)
    return body
