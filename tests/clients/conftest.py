"""The server behind a proxy, and programs that work for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.server import HEARTBEAT_SECONDS, Server
from tests.clients.support import LANGUAGES, RemoteWorker
from tests.clients.web import WebProcesses
from tests.helpers import end_other_backends
from tests.http_proxy import HttpProxy
from tests.process.support import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty journal, its gate closed."""
    return Journal(tmp_path)


@pytest.fixture(scope="session")
def web(django_db_setup: None, django_db_blocker: Any) -> Iterator[WebProcesses]:
    """Web processes with an event loop: a claim ends when its client has gone."""
    with django_db_blocker.unblock():
        web = WebProcesses("uvicorn", pgjobs={"HTTP_HEARTBEAT_SECONDS": HEARTBEAT_SECONDS})
        yield web
        web.close()
        end_other_backends()


@pytest.fixture
def server(transactional_db: None, web: WebProcesses) -> Server:
    """What the tests see of the server."""
    return Server(web.backend)


@pytest.fixture
def proxy(server: Server) -> Iterator[HttpProxy]:
    """A proxy in front of the server."""
    proxy = HttpProxy([server.backend], "/pgjobs/api/")
    yield proxy
    proxy.close()


@pytest.fixture(params=LANGUAGES)
def start(
    request: pytest.FixtureRequest, server: Server, proxy: HttpProxy
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
