"""Programs with a client, as processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.helpers import WAIT_SECONDS, skip, wait_until

HERE = Path(__file__).resolve().parent
LANGUAGES = ("python", "node")


def command_of(language: str) -> list[str]:
    """Return what runs the program of tests; skip without Node.js."""
    if language == "python":
        return [sys.executable, str(HERE / "remote_worker.py")]
    if (node := shutil.which("node")) is None:
        skip("there is no Node.js here")
    return [str(node), str(HERE / "remote_worker.mjs")]


class RemoteWorker:
    """A program that works for the server at a URL."""

    def __init__(self, language: str, url: str, token: str, **options: Any) -> None:
        log, name = tempfile.mkstemp(prefix="pgjobs-remote-")
        self._log = Path(name)
        self.process = subprocess.Popen(
            [*command_of(language), url, token, json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(log)

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self.process.poll() is None

    def output(self) -> str:
        """Return what it has written so far."""
        return self._log.read_text()

    def wait_until_ready(self) -> None:
        """Wait until it can be signalled."""
        wait_until(lambda: "ready" in self.output(), message=self.output)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end, wait, and return its status."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end, and return its status."""
        try:
            return self.process.wait(WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end: {self.output()}") from None

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        self._log.unlink(missing_ok=True)
