"""The program that started the process and watches it: none, a supervisor, or systemd."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


class Overseer:
    """No program watches: nothing is told."""

    # Does it end a process that gives no sign of life?
    is_watching = False

    def tell_ready(self) -> None:
        """Say that the process takes jobs."""

    def tell_alive(self) -> None:
        """Give a sign of life."""

    def tell_stopping(self) -> None:
        """Say that the process is about to end."""


class Systemd(Overseer):
    """The service manager, if it gave the process a socket to write to (`Type=notify`).

    Tasks and child processes do not get the socket: what they said would be taken for ours.
    Source: sd_notify(3).
    """

    def __init__(self) -> None:
        path = os.environ.pop("NOTIFY_SOCKET", "")
        is_watched = os.environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.is_watching = bool(os.environ.pop("WATCHDOG_USEC", "")) and is_watched and bool(path)
        # An abstract address is written with an @.
        self._address = path.replace("@", "\0", 1) if path.startswith("@") else path

    def tell_ready(self) -> None:
        self._send("READY=1")

    def tell_alive(self) -> None:
        if self.is_watching:
            self._send("WATCHDOG=1")

    def tell_stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # A manager that does not read must not block us, and it may be gone.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), self._address)
