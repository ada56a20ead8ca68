"""An HTTP proxy in front of web processes that can misbehave on demand."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import threading
from collections import deque
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple

from tests.helpers import wait_until

BACKEND_SECONDS = 60

When = Literal["before", "after"]


class Asked(NamedTuple):
    """What a client sent, and the status of the answer (None: it got none)."""

    method: str
    path: str
    body: Any
    status: int | None


class Rule:
    """What becomes of the next requests whose path contains *pattern*."""

    def __init__(self, pattern: str, when: When, times: float, status: int | None) -> None:
        self.pattern = pattern
        self.when = when
        self.left = times
        self.status = status
        self.matched = threading.Event()

    def wait(self, timeout: float = 15.0) -> None:
        """Wait until it was used for the first time."""
        assert self.matched.wait(timeout), f"nobody asked for {self.pattern!r} in {timeout} s"

    def end(self) -> None:
        """Let later requests pass."""
        self.left = 0


class HttpProxy:
    """Listens on 127.0.0.1 and forwards to `host:port`s, in turn, of which some may be down."""

    def __init__(self, backends: Sequence[str], path: str = "") -> None:
        self.backends = list(backends)
        self._turn = itertools.count()
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        # What was asked and answered, the newest last.
        self.asked: deque[Asked] = deque(maxlen=10_000)
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("ItsHandler", (Handler,), {"proxy": self})
        )
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}{path}"
        threading.Thread(target=self._server.serve_forever, args=[0.02], daemon=True).start()

    def lose(self, pattern: str, *, when: When = "after", times: float = 1) -> Rule:
        """Close the connection of a request instead of forwarding it (or its answer)."""
        return self._add(Rule(pattern, when, times, None))

    def answer(self, pattern: str, status: int, *, times: float = 1) -> Rule:
        """Answer a request with a status, as a proxy does, instead of forwarding it."""
        return self._add(Rule(pattern, "before", times, status))

    def count(self, pattern: str, status: int | None = None) -> int:
        """Return how many requests with *pattern* in their path were answered so (or at all)."""
        return sum(
            pattern in asked.path and (status is None or asked.status == status)
            for asked in list(self.asked)
        )

    def wait_for(self, pattern: str, status: int | None = None) -> None:
        """Wait until one more request was answered."""
        before = self.count(pattern, status)
        wait_until(lambda: self.count(pattern, status) > before)

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()

    def match(self, path: str) -> Rule | None:
        """Return the first rule that fits, and use it up."""
        with self._lock:
            for rule in self._rules:
                if rule.left > 0 and rule.pattern in path:
                    rule.left -= 1
                    return rule
        return None

    def forward(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Ask the next backend that listens; 502 if none does, or it went away."""
        for _ in self.backends:
            backend = self.backends[next(self._turn) % len(self.backends)]
            connection = http.client.HTTPConnection(backend, timeout=BACKEND_SECONDS)
            try:
                connection.connect()
            except OSError:
                continue
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except (OSError, http.client.HTTPException):
                break
            finally:
                connection.close()
        return 502, [("Content-Type", "text/html")], b"<h1>Bad Gateway</h1>"

    def _add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule


class Handler(BaseHTTPRequestHandler):
    """Answers the requests to a proxy, that of the subclass."""

    proxy: HttpProxy
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        rule = self.proxy.match(self.path)
        if rule is None or rule.when == "after":
            answer = self.proxy.forward(self.command, self.path, body, dict(self.headers))
        else:
            answer = rule.status, [], b"not now"
        if rule is None:
            self._note(body, answer[0])
        else:
            answer = rule.status, *answer[1:]
            self._note(body, rule.status)
            rule.matched.set()
        self._answer(*answer)

    do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

    def _note(self, body: bytes, status: int | None) -> None:
        sent = json.loads(body) if body else None
        self.proxy.asked.append(Asked(self.command, self.path, sent, status))

    def _answer(self, status: int | None, headers: list[tuple[str, str]], data: bytes) -> None:
        if status is None:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers:
            if name.lower() in ("content-type", "retry-after"):
                self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client has gone
            super().handle()
