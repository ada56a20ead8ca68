"""A TCP proxy in front of a PostgreSQL server that can misbehave on demand.

It understands just enough of the protocol to know which statement a client executes, also
when that was prepared long ago, and when the server's answer to it is complete.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from tests.helpers import database_url, settings_of

BLOCK = 65536
# Requests that come before the startup message: TLS and GSSAPI, both answered with "no".
ENCRYPTION_REQUESTS = (80877103, 80877104)
# Types of messages: of the client, and (the last) of the server.
PARSE, BIND, SYNC, QUERY = b"P", b"B", b"S", b"Q"
READY_FOR_QUERY = b"Z"

When = Literal["before", "after"]


class Rule:
    """Cut the connection of the client that executes a statement containing *pattern*."""

    def __init__(self, pattern: bytes, when: When, times: int) -> None:
        self.pattern = pattern
        self.when = when
        self.left = times
        self.matched = threading.Event()

    def wait(self, timeout: float = 15.0) -> None:
        """Wait until the connection was cut for the first time."""
        assert self.matched.wait(timeout), f"nobody sent {self.pattern!r} within {timeout} s"


class Messages:
    """Splits one direction of a connection into the protocol's messages."""

    def __init__(self, *, has_startup: bool) -> None:
        self._rest = b""
        self._in_startup = has_startup

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return (type, whole message) of each message that *data* completes.

        The type of a startup message is b"".
        """
        self._rest += data
        found = []
        while True:
            head = 0 if self._in_startup else 1
            if len(self._rest) < head + 4:
                return found
            (length,) = struct.unpack_from("!I", self._rest, head)
            if len(self._rest) < head + length:
                return found
            message, self._rest = self._rest[: head + length], self._rest[head + length :]
            found.append((message[:head], message))
            if self._in_startup and request_code(message) not in ENCRYPTION_REQUESTS:
                self._in_startup = False


def request_code(message: bytes) -> int:
    """Return the code of a startup message: a protocol version or a special request."""
    return int(struct.unpack_from("!I", message, 4)[0])


class Cut(Exception):
    """A rule of the proxy says that this connection ends now."""


class Link:
    """One client's connection and the one to the server behind it."""

    def __init__(self, proxy: TcpProxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.statements: dict[bytes, bytes] = {}
        # ReadyForQuery messages still to come: one for the startup, one per Sync or Query.
        self.awaited = 1
        # Cut when that many more have come; 0 is never.
        self.cut_after = 0

    def start(self) -> None:
        """Forward in both directions, each in a thread."""
        for pump in (self._pump_client, self._pump_server):
            threading.Thread(target=self._run, args=[pump], daemon=True).start()

    def end(self, *, reset: bool) -> None:
        """Close both sides; with *reset* the client gets an error, not an orderly end."""
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                if reset:
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # A close alone does not wake the thread that reads; writing must stay open
                # here, or an orderly end would be sent before the reset.
                side.shutdown(socket.SHUT_RD)
            side.close()
        self.proxy.forget(self)

    def _run(self, pump: Callable[[], None]) -> None:
        try:
            pump()
        except Cut:
            self.end(reset=True)
        except OSError:
            self.end(reset=True)  # a side has gone, or the other thread closed both
        else:
            self.end(reset=False)

    def _pump_client(self) -> None:
        messages = Messages(has_startup=True)
        while data := self.client.recv(BLOCK):
            self.proxy.wait_for_flow()
            if self.proxy.dropping:
                continue
            for kind, message in messages.feed(data):
                if not kind and request_code(message) in ENCRYPTION_REQUESTS:
                    self.client.sendall(b"N")
                else:
                    self._inspect(kind, message)
                    self.server.sendall(message)

    def _inspect(self, kind: bytes, message: bytes) -> None:
        """Note what a client's message executes; raise Cut if it may not get through."""
        if kind == PARSE:
            name, text = message[5:].split(b"\0", 2)[:2]
            self.statements[name] = text
        elif kind == BIND:
            self._apply_rules(self.statements.get(message[5:].split(b"\0", 2)[1], b""), message)
        elif kind == QUERY:
            self._apply_rules(message[5:-1], message)
        if kind in (SYNC, QUERY):
            self.awaited += 1

    def _apply_rules(self, sql: bytes, message: bytes) -> None:
        self.proxy.executed.append(sql.decode(errors="replace"))
        when = self.proxy.match(sql, message)
        if when == "before":
            raise Cut
        if when == "after" and not self.cut_after:
            self.cut_after = self.awaited + 1

    def _pump_server(self) -> None:
        messages = Messages(has_startup=False)
        while data := self.server.recv(BLOCK):
            self.proxy.wait_for_flow()
            if self.proxy.dropping:
                continue
            for kind, message in messages.feed(data):
                if kind == READY_FOR_QUERY:
                    self.awaited -= 1
                    if self.cut_after:
                        self.cut_after -= 1
                        if not self.cut_after:
                            raise Cut
                if not self.cut_after:
                    self.client.sendall(message)


class TcpProxy:
    """Listens on 127.0.0.1 and forwards to the database of *settings* (Django's; with socket
    directory or host and port). Works from threads of its own; see the fixture `proxy`.
    """

    def __init__(self, settings: dict[str, Any] | None = None) -> None:
        self.settings = settings or settings_of()
        # SQL of every statement executed through the proxy, the newest last.
        self.executed: deque[str] = deque(maxlen=100_000)
        self.accepted = 0
        self.dropping = False
        self._rules: list[Rule] = []
        self._links: set[Link] = set()
        self._lock = threading.Lock()
        self._flow = threading.Event()
        self._flow.set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.accept()

    @property
    def url(self) -> str:
        """The database's URL through the proxy."""
        options = {
            **(self.settings.get("OPTIONS") or {}),
            "sslmode": "disable",
            "gssencmode": "disable",
        }
        return database_url(self.settings, HOST="127.0.0.1", PORT=self.port, OPTIONS=options)

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        with self._lock:
            return len(self._links)

    def accept(self) -> None:
        """Take connections (again, after `refuse`), on the same port."""
        if self._listener is None:
            listener = socket.create_server(("127.0.0.1", self.port))
            self.port = listener.getsockname()[1]
            self._listener = listener
            threading.Thread(target=self._serve, args=[listener], daemon=True).start()

    def refuse(self) -> None:
        """Refuse new connections, as a host does on which nothing listens."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def cut(self) -> None:
        """Reset all connections of now; new ones are welcome."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.end(reset=True)

    def freeze(self) -> None:
        """Hold back all bytes both ways, connections stay open: the network is gone."""
        self._flow.clear()

    def thaw(self) -> None:
        """Let flow on what `freeze` has held back."""
        self._flow.set()

    def drop(self) -> None:
        """Swallow all bytes both ways from now on; the connections of now stay useless."""
        self.dropping = True

    def undrop(self) -> None:
        """Forward again; cuts the connections that have lost bytes."""
        self.dropping = False
        self.cut()

    def cut_on(self, pattern: str | bytes, *, when: When = "before", times: int = 1) -> Rule:
        """Cut the connection of a client that executes a statement containing *pattern*.

        The pattern is searched in the SQL of the statement, prepared or not, and in its
        parameters as they are sent. *when* is "before" (the server never sees it) or "after"
        (the server has done it, the client does not get the answer). Rule.wait() waits for it.
        """
        raw = pattern.encode() if isinstance(pattern, str) else pattern
        rule = Rule(raw, when, times)
        with self._lock:
            self._rules.append(rule)
        return rule

    def match(self, sql: bytes, message: bytes) -> When | None:
        """Return what the first rule that fits wants, and use it up."""
        with self._lock:
            for rule in self._rules:
                if rule.left > 0 and (rule.pattern in sql or rule.pattern in message):
                    rule.left -= 1
                    rule.matched.set()
                    return rule.when
        return None

    def wait_for_flow(self) -> None:
        """Block while the proxy is frozen."""
        self._flow.wait()

    def forget(self, link: Link) -> None:
        """Take *link* off the list of connections."""
        with self._lock:
            self._links.discard(link)

    def close(self) -> None:
        """End everything."""
        self.refuse()
        self.cut()
        self.thaw()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = self._connect_server()
            except OSError:
                client.close()
                continue
            # Messages are passed on one by one: without this each may wait for an acknowledgement.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = Link(self, client, server)
            with self._lock:
                self._links.add(link)
                self.accepted += 1
            link.start()

    def _connect_server(self) -> socket.socket:
        host, port = str(self.settings["HOST"] or "localhost"), self.settings["PORT"] or 5432
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{port}")
            return server
        return socket.create_connection((host, int(port)))
