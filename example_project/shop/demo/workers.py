"""The demo's processes: real `manage.py runjobs`, and a program that works over HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from django.conf import settings

from django_pgjobs.models import Worker
from example_project.shop.demo.feed import DemoError

LEASE_SECONDS = 3  # short, so that the jobs of a killed worker are back soon
LIFETIME_SECONDS = 300  # a worker that outlives the demo, however that came about, ends
STOP_SECONDS = 15
LOG_TAIL_LINES = 15


class Workers:
    """Worker processes that do not outlive the `with` block."""

    def __init__(
        self, logs: Path, *, concurrency: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self._logs = logs
        self._environment = dict(environment or {})
        self._concurrency = concurrency
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_SECONDS if exc is None else 2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run."""
        return [process.pid for process in self._processes]

    def start(self) -> int:
        """Start a worker and return its process id."""
        command = [
            sys.executable,
            str(Path(settings.BASE_DIR) / "manage.py"),
            "runjobs",
            f"--concurrency={self._concurrency}",
            f"--lease-seconds={LEASE_SECONDS}",
            f"--max-time={LIFETIME_SECONDS}",
            "--poll-interval=1",
            "--no-reload",
            "--verbosity=1",
        ]
        return self.start_program(command)

    def start_program(self, command: Sequence[str], **environment: str) -> int:
        """Start a program that ends with 0 at SIGTERM, and return its process id."""
        log_path = self._logs / f"worker-{len(self._started) + 1}.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # As in production: with DEBUG, Django keeps a record of every query.
                env=os.environ
                | {"DJANGO_DEBUG": "0", "PYTHONUNBUFFERED": "1"}
                | self._environment
                | environment,
                # Ctrl-C reaches the whole foreground group; the demo ends its workers itself.
                start_new_session=True,
            )
        self._processes.append(process)
        self._started.append(process.pid)
        return process.pid

    def kill(self, pid: int) -> None:
        """Kill a worker with SIGKILL: no handler runs, nothing is tidied up."""
        [process] = [process for process in self._processes if process.pid == pid]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self._processes.remove(process)

    def stop(self) -> None:
        """Ask all workers to end; raise DemoError unless each ends cleanly."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                status = process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                status = None
            if status != 0:
                tail = self.log_tail(process.pid)
                raise DemoError(f"worker {process.pid} ended with {status}, expected 0{tail}")
        self._processes.clear()

    def check(self) -> None:
        """Raise DemoError if a worker has ended by itself."""
        for process in self._processes:
            if process.poll() is not None:
                status, tail = process.returncode, self.log_tail(process.pid)
                raise DemoError(f"worker {process.pid} ended with {status}{tail}")

    def rows(self) -> dict[int, int]:
        """Return worker id -> process id of those that have signed on."""
        signed_on = Worker.objects.filter(
            pid__in=self.pids, host=socket.gethostname(), ended_at=None, lost=False
        )
        return dict(signed_on.values_list("id", "pid"))

    def log_tail(self, pid: int) -> str:
        """Return the end of a worker's log, for an error message."""
        log_path = self._logs / f"worker-{self._started.index(pid) + 1}.log"
        lines = log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return f"; the end of {log_path}:\n" + "\n".join(lines)
