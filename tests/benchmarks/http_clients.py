"""The clients of the benchmark of workers over HTTP, each in a process of its own.

They share the processors with what is measured. So the rates of the API are taken with a client
that costs as little as one in Python can: a socket, and JSON. What a worker of the project's own
client (clients/python) makes of it, with its threads, is a row of its own.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

PORT = 8799
BASE = "/pgjobs/api/v1/"
CLIENT = Path(__file__).parents[2] / "clients" / "python" / "pgjobs_worker.py"
TASK = "tests.http.tasks.resize"
# Clients connect one after the other: a process that waits for connections takes all that come at
# once, and the other would have nothing to do.
CONNECT_SECONDS = 0.2
MOST_SECONDS = 60.0
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class Work(NamedTuple):
    """What one client is to do: claim and finish *size* jobs at a time, from *begin* on."""

    secret: str
    size: int
    number: int
    begin: float

    def wait(self) -> None:
        """Wait until it begins."""
        time.sleep(max(0.0, self.begin - time.time()))


class Client:
    """A connection that is kept alive."""

    def __init__(self, secret: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", PORT), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = (
            f"POST {BASE}%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {secret}\r\n"
            "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )

    def post(self, address: str, body: Any) -> Any:
        """Return the body of the answer; raise RuntimeError for an error."""
        text = json.dumps(body)
        self._socket.sendall((self._head % (address, len(text)) + text).encode())
        head, content = self._answer()
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"{address}: {head!r} {content!r}")
        return json.loads(content)

    def _answer(self) -> tuple[bytes, bytes]:
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._received()
        found = LENGTH.search(data, 0, end)
        if found is None:
            raise RuntimeError(f"an answer without a length: {data!r}")
        while len(data) < end + 4 + int(found[1]):
            data += self._received()
        return data[:end], data[end + 4 :]

    def _received(self) -> bytes:
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server has closed the connection")
        return data


def work(asked: Work) -> tuple[int, float]:
    """Work until nothing is left; return how many jobs it had, and its processor seconds."""
    time.sleep(CONNECT_SECONDS * asked.number)
    client = Client(asked.secret)
    worker = client.post("workers", {"name": "bench"})["worker"]
    done = 0
    asked.wait()
    spent = time.process_time()
    while time.time() < asked.begin + MOST_SECONDS:
        given = client.post(f"workers/{worker}/claim", {"max_jobs": asked.size})["assignments"]
        if not given:
            break
        if asked.size == 1:
            client.post(f"assignments/{given[0]['assignment']}/result", {"result": 1})
        else:
            results = [{"assignment": each["assignment"], "result": 1} for each in given]
            client.post("results", {"results": results})
        done += len(given)
    return done, time.process_time() - spent


def work_as_worker(asked: Work, is_over: Event) -> None:
    """Be a worker of the project's own client, with *size* slots, until *is_over*."""
    spec = importlib.util.spec_from_file_location("pgjobs_worker", CLIENT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    logging.disable(logging.INFO)
    worker = module.Worker(f"http://127.0.0.1:{PORT}/pgjobs/api/", asked.secret, slots=asked.size)
    run: Callable[..., Any] = lambda job, width: 1  # noqa: E731
    worker.task(TASK)(run)
    asked.wait()
    thread = threading.Thread(target=worker.run)
    thread.start()
    is_over.wait()
    worker.stop()
    thread.join()
