"""Servers of the test that callbacks go to: one that behaves, and some that do not."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "a secret of thirty-two characters or more"


@dataclass
class Receiver:
    """A server at *url*; it answers with the next of *answers* (status, headers), then with 204."""

    url: str
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    got: list[tuple[str, Message, bytes]] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        """The body of the only request."""
        [(_, _, body)] = self.got
        return body

    @property
    def headers(self) -> Message:
        """The headers of the only request."""
        [(_, headers, _)] = self.got
        return headers


@contextlib.contextmanager
def receiving(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Run a server that notes what it gets."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            receiver.got.append((self.path, self.headers, self.rfile.read(length)))
            status, headers = receiver.answers.pop(0) if receiver.answers else (204, {})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    scheme = "http"
    if context is not None:
        scheme = "https"
        server.socket = context.wrap_socket(server.socket, server_side=True)
    receiver = Receiver(f"{scheme}://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def misbehaving(behave: Callable[[socket.socket], None]) -> Iterator[str]:
    """Run a server that reads a request, and does with the connection what *behave* does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.recv(65_536)
                behave(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        # accept() is woken by the one, and not by the other alone.
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
