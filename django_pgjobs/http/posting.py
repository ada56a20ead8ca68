"""One POST to a host that may be hostile: in bounded time, with a bounded answer.

No redirect is followed, no proxy of the environment is asked, and of the answer nothing is kept but
its status and when to come again.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple

from django_pgjobs.http.destinations import Destination, SocketAddress, find_addresses

# From the connection to the end of the answer's headers, all together.
SECONDS = 15.0
# The answer is read so far and so long, that whoever writes it is not cut off. Its lines and chunks
# are of any size, so the bytes that come in are counted.
MAX_ANSWER_BYTES = 131_072
REST_SECONDS = 1.0
# Longer a receiver cannot put a callback off.
MAX_RETRY_AFTER = 3_600.0


class Answer(NamedTuple):
    """What came back; *retry_after* is seconds, None if the receiver does not say."""

    status: int
    retry_after: float | None


def post(destination: Destination, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Send a body; return the answer.

    Raise CallBackFailed, OSError or HTTPException if there is none.
    """
    addresses = find_addresses(destination)
    deadline = time.monotonic() + SECONDS
    with (
        _connect(addresses, deadline) as plain,
        _secured(plain, destination, deadline) as connection,
    ):
        connection.settimeout(_left(deadline))
        connection.sendall(_request(destination, body, headers))
        return _read(TimedReader(connection, deadline))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError(f"no answer within {SECONDS:g} s.")
    return left


def _connect(addresses: Sequence[SocketAddress], deadline: float) -> socket.socket:
    """Return a connection to the first address that takes one."""
    errors: list[OSError] = []
    for each in addresses:
        connection = socket.socket(each.family, socket.SOCK_STREAM)
        try:
            connection.settimeout(_left(deadline))
            connection.connect(each.address)
        except OSError as error:
            connection.close()
            errors.append(error)
        else:
            return connection
    raise errors[0]


def _secured(plain: socket.socket, destination: Destination, deadline: float) -> socket.socket:
    """Return the connection, encrypted if the address says so, with a certificate of its name."""
    if destination.scheme == "http":
        return plain
    plain.settimeout(_left(deadline))
    return ssl_context().wrap_socket(plain, server_hostname=destination.host)


def ssl_context() -> ssl.SSLContext:
    """Return what says which certificates are good: those that the machine trusts."""
    return ssl.create_default_context()


def _request(destination: Destination, body: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"POST {destination.path} HTTP/1.1",
        f"Host: {destination.authority}",
        "User-Agent: django-pgjobs",
        "Accept: */*",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class TimedReader(io.RawIOBase):
    """What a connection receives until a deadline, however slowly it drips, and up to a bound."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self.connection = connection
        self.deadline = deadline
        self.bytes_left = MAX_ANSWER_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.connection.settimeout(_left(self.deadline))
        if not self.bytes_left:
            # As if the answer were over.
            return 0
        count = self.connection.recv_into(buffer, min(len(buffer), self.bytes_left))
        self.bytes_left -= count
        return count

    def makefile(self, mode: str) -> io.BufferedReader:
        """Give itself to HTTPResponse, which asks a socket so."""
        return io.BufferedReader(self)


def _read(reader: TimedReader) -> Answer:
    response = HTTPResponse(reader, method="POST")  # type: ignore[arg-type]
    with response:
        response.begin()
        answer = Answer(response.status, _seconds(response.getheader("Retry-After")))
        reader.deadline = min(reader.deadline, time.monotonic() + REST_SECONDS)
        with suppress(OSError, HTTPException, ValueError):
            response.read(MAX_ANSWER_BYTES)
    return answer


def _seconds(text: str | None) -> float | None:
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 9:
        return None
    return min(float(text), MAX_RETRY_AFTER)
