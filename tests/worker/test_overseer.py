"""What systemd hears of a worker and of a supervisor, over a real socket."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from django_pgjobs.worker.process.overseer import Overseer, Systemd


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The end of systemd."""
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
            listening.bind(f"{folder}/notify")
            listening.settimeout(30)
            monkeypatch.setenv("NOTIFY_SOCKET", f"{folder}/notify")
            yield listening


def test_systemd_hears_of_start_life_and_end(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    systemd = Systemd()
    assert systemd.is_watching
    for say, heard in (
        (systemd.tell_ready, b"READY=1"),
        (systemd.tell_alive, b"WATCHDOG=1"),
        (systemd.tell_stopping, b"STOPPING=1"),
    ):
        say()
        assert manager.recv(100) == heard
    # Tasks and children do not get it.
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}], ids=["none", "other"]
)
def test_a_watchdog_that_is_not_for_us_hears_nothing(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    systemd = Systemd()
    assert not systemd.is_watching
    systemd.tell_alive()
    systemd.tell_ready()
    assert manager.recv(100) == b"READY=1"


def test_an_abstract_address_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"pgjobs-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        Systemd().tell_ready()
        assert listening.recv(100) == b"READY=1"


@pytest.mark.time_limit(20)
def test_a_manager_that_does_not_read_keeps_nobody(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    systemd = Systemd()
    for _ in range(10_000):
        systemd.tell_alive()
    Path(manager.getsockname()).unlink()
    systemd.tell_stopping()


def test_without_systemd_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    for overseer in (Systemd(), Overseer()):
        assert not overseer.is_watching
        overseer.tell_ready()
        overseer.tell_alive()
        overseer.tell_stopping()
