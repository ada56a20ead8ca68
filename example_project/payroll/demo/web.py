"""A web process of the shop, and the tax office's program that works for it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application
from django.utils import timezone

from django_pgjobs.http.tokens import TokenScope, create_token
from django_pgjobs.http.waiting import waiting
from django_pgjobs.models import Worker
from example_project.shop.demo.feed import DemoError
from example_project.shop.demo.workers import Workers

OFFICE = Path(__file__).resolve().parent.parent / "tax_office"
TOKEN_LIVES = timedelta(hours=1)
OPEN_SECONDS = 60
POLL_SECONDS = 0.05


class QuietHandler(WSGIRequestHandler):
    """Answers a request."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: there are too many."""


class WebServer:
    """The project's pages in threads of this process, within the `with` block."""

    def __init__(self) -> None:
        self._server = ThreadedWSGIServer(("127.0.0.1", 0), QuietHandler, allow_reuse_address=False)
        self._server.set_app(get_wsgi_application())
        self.url = f"http://127.0.0.1:{self._server.server_port}/pgjobs/api/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        # A claim of the tax office may still wait, and the database is about to stop.
        waiting.end()


def open_office(workers: Workers, url: str) -> None:
    """Start the tax office, and wait until it has registered."""
    scope = TokenScope(verbs=["work"], queues=["taxes"], expires_at=timezone.now() + TOKEN_LIVES)
    token, secret = create_token("tax office", scope, by="demo")
    pid = workers.start_program(command_of_office(), URL=url, TOKEN=secret)
    until = time.monotonic() + OPEN_SECONDS
    while not Worker.objects.filter(token_id=token.pk).exists():
        workers.check()
        if time.monotonic() > until:
            tail = workers.log_tail(pid)
            raise DemoError(f"the tax office does not open within {OPEN_SECONDS} s{tail}")
        time.sleep(POLL_SECONDS)


@cache
def language_of_office() -> str:
    """Return which of its programs can run here."""
    if (node := shutil.which("node")) is not None:
        # 18 or newer.
        command = [node, "-e", "process.exit(globalThis.fetch ? 0 : 1)"]
        if subprocess.run(command, check=False).returncode == 0:
            return "Node.js"
    return "Python"


def command_of_office() -> list[str]:
    """Return what runs the tax office."""
    if language_of_office() == "Node.js":
        return ["node", f"{OFFICE}.mjs"]
    return [sys.executable, f"{OFFICE}.py"]
