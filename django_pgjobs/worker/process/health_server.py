"""A worker's HTTP server: /live and /ready for probes, /metrics for Prometheus.

It is not meant for the public, and yet no caller may slow the worker down: requests are bounded in
time, size and number, and none asks the database.
"""

from __future__ import annotations

import errno
import io
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from weakref import WeakSet

from django_pgjobs.metrics.exposition import CONTENT_TYPE
from django_pgjobs.worker.process.health import Health, HealthUnusable
from django_pgjobs.worker.role import Role
from django_pgjobs.worker.safe_log import get_logger

logger = get_logger(__name__)

# How long reading a request may take, and then sending its answer.
REQUEST_SECONDS = 2.0
MAX_REQUEST_BYTES = 16_384
# How many are answered at a time; for another one the oldest is closed.
MAX_CALLERS = 16
# Metrics are computed at most this often.
FRESH_SECONDS = 1.0
# How often it checks whether the worker is ending.
LOOK_SECONDS = 1.0
# Where the process has no descriptor left to take a call with.
PAUSE_SECONDS = 0.2
_listening: WeakSet[_Server] = WeakSet()

TEXT = "text/plain; charset=utf-8"


class HealthServer(Role):
    """Tells the worker's health over HTTP; raise HealthUnusable if the port cannot be used."""

    name = "health server"

    def __init__(
        self, host: str, port: int, health: Health, on_crash: Callable[[str], None]
    ) -> None:
        super().__init__(on_crash)
        self._health = health
        self._metrics = b""
        self._metrics_at = float("-inf")
        self._making = threading.Lock()
        try:
            self._server = _Server(host, port, self._answer)
        except (OSError, OverflowError) as error:
            raise HealthUnusable(
                f"--health-port: nothing can listen at {host}:{port}: {error}."
            ) from error

    @property
    def port(self) -> int:
        """The port at which it listens."""
        return int(self._server.server_address[1])

    def run(self) -> None:
        with self._server:
            while not self.stop_requested:
                self._server.handle_request()

    def stop(self) -> None:
        super().stop()
        # It wakes from waiting for calls, where the system does so.
        with suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)

    def _answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        if path == "/live":
            return _verdict("live", self._health.find_still())
        if path == "/ready":
            return _verdict("ready", self._health.find_unready())
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE, self._fresh_metrics()
        return HTTPStatus.NOT_FOUND, TEXT, b"Here are /live, /ready and /metrics.\n"

    def _fresh_metrics(self) -> bytes:
        with self._making:
            if time.monotonic() - self._metrics_at > FRESH_SECONDS:
                self._metrics = self._health.describe()
                self._metrics_at = time.monotonic()
            return self._metrics


def _verdict(good: str, reason: str) -> tuple[HTTPStatus, str, bytes]:
    if reason:
        return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, f"not {good}: {reason}\n".encode()
    return HTTPStatus.OK, TEXT, f"{good}\n".encode()


def _close_in_child() -> None:
    """Close the port in a process that a task has forked: it may outlive the worker."""
    for server in list(_listening):
        with suppress(OSError):
            server.socket.close()


os.register_at_fork(after_in_child=_close_in_child)


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64
    timeout = LOOK_SECONDS

    def __init__(
        self, host: str, port: int, answer: Callable[[str], tuple[HTTPStatus, str, bytes]]
    ) -> None:
        self.answer = answer
        # The open calls, the oldest first.
        self._callers: dict[Any, None] = {}
        self._changing = threading.Lock()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)
        _listening.add(self)

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # The call is still there, so without a pause this would be tried again and again.
                time.sleep(PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changing:
            self._callers[request] = None
            oldest = next(iter(self._callers)) if len(self._callers) > MAX_CALLERS else None
            self._callers.pop(oldest, None)
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changing:
            self._callers.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about callers that hang up or do not send HTTP."""


class _Handler(BaseHTTPRequestHandler):
    # Of the socket: how long sending an answer may take.
    timeout = REQUEST_SECONDS
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BytesIO(self._read_head())

    def _read_head(self) -> bytes:
        """Return the request up to its body, empty if it takes too long or is too long."""
        head, until = b"", time.monotonic() + REQUEST_SECONDS
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            left = until - time.monotonic()
            if left <= 0 or len(head) > MAX_REQUEST_BYTES:
                return b""
            self.connection.settimeout(left)
            try:
                piece = self.connection.recv(4096)
            except OSError:
                return b""
            if not piece:
                return b""
            head += piece
        self.connection.settimeout(REQUEST_SECONDS)
        return head

    def do_GET(self) -> None:
        try:
            status, kind, body = self.server.answer(self.path.partition("?")[0])
        except Exception:
            logger.exception("a request for the health of the worker cannot be answered")
            status, kind, body = HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, b"see the log\n"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name is http.server's

    def version_string(self) -> str:
        """Return what the header Server says: no versions."""
        return "pgjobs"

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: they come every few seconds, and may hold secrets."""
