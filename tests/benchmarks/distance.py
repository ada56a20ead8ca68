"""A proxy in front of the server that makes it far away: all bytes arrive later, each way."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue

BLOCK = 1 << 18


@contextmanager
def distant(server: Mapping[str, object], seconds: float) -> Iterator[dict[str, str]]:
    """Yield the libpq variables of a server that is so far away, of its parameters.

    Without distance there is no proxy.
    """
    if not seconds:
        yield {}
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, server, seconds), daemon=True).start()
        yield {"PGHOST": "127.0.0.1", "PGPORT": str(listener.getsockname()[1])}
        # A close alone does not wake the thread that accepts.
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, server: Mapping[str, object], seconds: float) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            upstream = _connect(server)
            for source, target in ((client, upstream), (upstream, client)):
                threading.Thread(
                    target=_forward, args=(source, target, seconds), daemon=True
                ).start()


def _connect(server: Mapping[str, object]) -> socket.socket:
    host, port = str(server.get("host") or "localhost"), server.get("port") or 5432
    if host.startswith("/"):
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(f"{host}/.s.PGSQL.{port}")
        return upstream
    upstream = socket.create_connection((host, int(str(port))))
    upstream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return upstream


def _forward(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """Read from one side; what was read is sent to the other after so many seconds."""
    waiting: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
    threading.Thread(target=_send, args=(waiting, target), daemon=True).start()
    data = b"-"
    while data:
        try:
            data = source.recv(BLOCK)
        except OSError:
            data = b""
        waiting.put((time.monotonic() + seconds, data))


def _send(waiting: SimpleQueue[tuple[float, bytes]], target: socket.socket) -> None:
    with target, suppress(OSError):
        while True:
            due, data = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                target.shutdown(socket.SHUT_RDWR)
                return
            target.sendall(data)
