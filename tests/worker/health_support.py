"""Asking a worker over HTTP how it does."""

from __future__ import annotations

import http.client
from typing import NamedTuple


class Answer(NamedTuple):
    """What came back."""

    status: int
    text: str
    headers: dict[str, str]


def ask(port: int, path: str, *, method: str = "GET", host: str = "127.0.0.1") -> Answer:
    """Return the answer of the worker that listens at a port."""
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        text = response.read().decode()
        return Answer(response.status, text, dict(response.getheaders()))
    finally:
        connection.close()
