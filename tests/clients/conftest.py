"""The server behind a proxy, and programs that work for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.standin import StandIn
from tests.clients.support import LANGUAGES, RemoteWorker
from tests.http_proxy import HttpProxy
from tests.process.support import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty journal, its gate closed."""
    return Journal(tmp_path)


@pytest.fixture
def server() -> Iterator[StandIn]:
    server = StandIn()
    yield server
    server.close()


@pytest.fixture
def proxy(server: StandIn) -> Iterator[HttpProxy]:
    """A proxy in front of the server."""
    proxy = HttpProxy([server.backend], "/pgjobs/api/")
    yield proxy
    proxy.close()


@pytest.fixture(params=LANGUAGES)
def start(
    request: pytest.FixtureRequest, server: StandIn, proxy: HttpProxy
) -> Iterator[Callable[..., RemoteWorker]]:
    """Start a program that works for the server: `start(token=None, **options)` of its Worker."""
    workers: list[RemoteWorker] = []

    def start_one(*, token: str | None = None, **options: Any) -> RemoteWorker:
        workers.append(RemoteWorker(request.param, proxy.url, token or server.token, **options))
        workers[-1].wait_until_ready()
        return workers[-1]

    yield start_one
    for worker in workers:
        worker.close()
