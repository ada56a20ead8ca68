"""The other company's API, small enough for a thread: it counts, refuses and remembers.

    PUT /integrations/17/products/4711    {"revision": 3, "fields": {"price": 1290}}
    GET /integrations/17/products?after=4711&limit=100    [{"id": 4712, "price": 990}, ...]
    GET /rates    {"USD": 1.0812}

More than so many calls of an integration in any second are answered with 429, some others with
503, each with Retry-After. A price of 0 gets 400.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

PERIOD_SECONDS = 1.0
MAX_BODY_BYTES = 64 * 1024
PATH = re.compile(r"/integrations/(\d{1,18})/products(?:/(\d{1,18}))?")

Answer = tuple[int, object]  # status, JSON


class Window:
    """At most *limit* calls in any *period* seconds: a sliding window, not one of the clock."""

    def __init__(self, limit: int, period: float = PERIOD_SECONDS) -> None:
        self.limit = limit
        self._period = period
        self._taken: deque[float] = deque()

    def admits(self, now: float) -> bool:
        """Count a call at *now*, unless it is one too many; refused calls do not count."""
        while self._taken and self._taken[0] <= now - self._period:
            self._taken.popleft()
        if len(self._taken) >= self.limit:
            return False
        self._taken.append(now)
        return True


class Catalogue:
    """The products of one integration; of each field the value with the highest revision."""

    def __init__(self) -> None:
        self._fields: dict[int, dict[str, tuple[int, Any]]] = {}

    def put(self, product_id: int, revision: int, fields: dict[str, Any]) -> None:
        """Take in fields of a product unless they are older than what is there."""
        known = self._fields.setdefault(product_id, {})
        for name, value in fields.items():
            if name not in known or known[name][0] <= revision:
                known[name] = revision, value

    def get(self, product_id: int) -> dict[str, Any]:
        """Return the fields of a product, none if it is not known."""
        return {name: value for name, (_, value) in self._fields.get(product_id, {}).items()}

    def page(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Return id and price of the next *limit* products after an id."""
        ids = sorted(product_id for product_id in self._fields if product_id > after)[:limit]
        return [{"id": pk, "price": self.get(pk).get("price", 0)} for pk in ids]


class OutsideApi:
    """The server; it runs in a thread of its own within the `with` block.

    *limit* is calls per second of an integration that has no entry in `limits`; *fault_share*
    is the part of calls that get 503, by dice with the seed *seed*.
    """

    def __init__(
        self, *, limit: int, fault_share: float = 0.0, seed: int = 0, port: int = 0
    ) -> None:
        self.limits: dict[int, int] = {}
        self.answers: Counter[int] = Counter()  # by status
        self._limit = limit
        self._fault_share = fault_share
        self._dice = random.Random(seed)
        self._windows: dict[int, Window] = {}
        self._catalogues: dict[int, Catalogue] = {}
        self._lock = threading.Lock()
        self._server = Server(("127.0.0.1", port), handler_of(self))

    @property
    def url(self) -> str:
        """The address to call."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def refused(self) -> int:
        """How many calls came above a limit."""
        return self.answers[429]

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="outside-api", daemon=True
        ).start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve_forever(self) -> None:
        """Serve in this thread, until it is interrupted."""
        try:
            self._server.serve_forever()
        finally:
            self._server.server_close()

    def product(self, integration_id: int, product_id: int) -> dict[str, Any]:
        """Return what has arrived of a product."""
        with self._lock:
            return self._catalogues.get(integration_id, Catalogue()).get(product_id)

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        """Answer one call."""
        url = urlsplit(target)
        if (method, url.path) == ("GET", "/rates"):
            return 200, {"USD": round(1.05 + 0.1 * random.random(), 4)}
        found = PATH.fullmatch(url.path)
        with self._lock:
            answer = self._answer(method, found, url.query, body)
            self.answers[answer[0]] += 1
        return answer

    def _answer(self, method: str, found: re.Match[str] | None, query: str, body: bytes) -> Answer:
        if found is None:
            return 404, {"error": "there is nothing here"}
        integration_id = int(found[1])
        limit = self.limits.get(integration_id, self._limit)
        window = self._windows.setdefault(integration_id, Window(limit))
        window.limit = limit
        if not window.admits(time.monotonic()):
            return 429, {"error": f"more than {limit} calls in {PERIOD_SECONDS:g} s"}
        if self._dice.random() < self._fault_share:
            return 503, {"error": "down for a moment"}
        catalogue = self._catalogues.setdefault(integration_id, Catalogue())
        if method == "PUT" and found[2]:
            return self._put(catalogue, int(found[2]), body)
        if method == "GET" and not found[2]:
            return self._page(catalogue, query)
        return 405, {"error": f"{method} does not go here"}

    def _put(self, catalogue: Catalogue, product_id: int, body: bytes) -> Answer:
        try:
            sent = json.loads(body)
            revision, fields = int(sent["revision"]), dict(sent["fields"])
        except (ValueError, TypeError, KeyError):
            return 400, {"error": "expected revision and fields"}
        if fields.get("price", 1) <= 0:
            return 400, {"error": f"price must be more than 0, got {fields['price']}"}
        catalogue.put(product_id, revision, fields)
        return 200, {"id": product_id}

    def _page(self, catalogue: Catalogue, query: str) -> Answer:
        wanted = parse_qs(query)
        try:
            after, limit = int(wanted["after"][0]), int(wanted["limit"][0])
        except (KeyError, ValueError):
            return 400, {"error": "expected after and limit"}
        return 200, catalogue.page(after, min(limit, 100))


class Server(ThreadingHTTPServer):
    """A thread per call."""

    daemon_threads = True
    request_queue_size = 128


def handler_of(api: OutsideApi) -> Callable[..., BaseHTTPRequestHandler]:
    """Return the class whose instances read a call, have *api* answer it, and write that."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds for a caller that says nothing
        wbufsize = -1  # headers and body in one packet

        def do_GET(self) -> None:
            self._serve(b"")

        def do_PUT(self) -> None:
            length = self.headers.get("Content-Length", "")
            size = int(length) if length.isdecimal() else 0
            self._serve(self.rfile.read(min(size, MAX_BODY_BYTES)))

        def _serve(self, body: bytes) -> None:
            status, said = api.answer(self.command, self.path, body)
            text = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            if status in (429, 503):
                self.send_header("Retry-After", "1")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: `answers` counts."""

    return Handler
