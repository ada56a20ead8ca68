"""The supervisor: starts worker processes, replaces those that end, passes signals on.

Children are new interpreters, not forks, so they share no connection, lock or thread with it.
They run in sessions of their own: Ctrl-C reaches the supervisor alone, which asks them to
stop. Each holds the reading end of a pipe; when the supervisor dies, however suddenly, the
pipe closes and the children stop.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.conf import ENVIRONMENT_VARIABLE, settings

from django_pgjobs.worker.runner import EXIT_CRASHED, EXIT_DISMISSED, EXIT_OK, EXIT_RELOAD
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.shutdown import SignalPipe
from django_pgjobs.worker.state import Options

logger = get_logger("django_pgjobs.worker")

# A child that lived shorter than this waits before it is started again, ever longer.
QUICK_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 30.0
# Beyond the shutdown timeout, before a child is killed.
EXTRA_SECONDS = 20.0
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3


@dataclass
class Child:
    """One place for a worker process, and the process in it at the moment."""

    number: int
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0
    is_done: bool = False
    exit_codes: list[int] = field(default_factory=list)


class Supervisor:
    """Keeps *processes* children running `runjobs` with *flags*."""

    def __init__(self, flags: list[str], options: Options, *, processes: int) -> None:
        self._flags = flags
        self._options = options
        self._children = [Child(number) for number in range(1, processes + 1)]
        self._stopping_since: float | None = None

    def run(self) -> int:
        """Run until a signal, or until every child is done; return the exit status."""
        pipe = SignalPipe(extra=(signal.SIGCHLD,))
        with pipe.installed():
            while not all(child.is_done for child in self._children):
                for child in self._children:
                    self._look_after(child)
                for number in pipe.wait(self._seconds_to_wait()):
                    self._handle(number)
        codes = [child.exit_codes[-1] for child in self._children if child.exit_codes]
        codes = [EXIT_OK if code == EXIT_DISMISSED else code for code in codes]
        if -signal.SIGKILL in codes:
            return EXIT_CRASHED
        return max((code for code in codes if code > 0), default=EXIT_OK)

    def _look_after(self, child: Child) -> None:
        if child.process is not None:
            code = child.process.poll()
            if code is None:
                self._kill_if_late(child)
                return
            self._note_exit(child, child.process, code)
        if child.is_done or self._stopping_since is not None:
            child.is_done = True
        elif time.monotonic() >= child.start_at:
            self._start(child)

    def _start(self, child: Child) -> None:
        command = [sys.executable, "-m", "django", "runjobs", *self._flags, "--child"]
        if self._options.name:
            command += ["--name", f"{self._options.name}-{child.number}"]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            ENVIRONMENT_VARIABLE: settings.SETTINGS_MODULE,
        }
        child.started_at = time.monotonic()
        child.process = subprocess.Popen(  # noqa: S603 - our own command line
            command, env=environment, stdin=subprocess.PIPE, start_new_session=True
        )

    def _note_exit(self, child: Child, process: subprocess.Popen[bytes], code: int) -> None:
        if process.stdin is not None:
            process.stdin.close()
        child.process = None
        child.exit_codes.append(code)
        lived = time.monotonic() - child.started_at
        if code == EXIT_OK:
            child.is_done = not self._is_replaced_after_limit()
        elif code == EXIT_DISMISSED:
            child.is_done = True
            logger.info("child %d was asked to stop and is not started again", child.number)
        elif code in (EXIT_USAGE, EXIT_UNREACHABLE) and lived < QUICK_SECONDS:
            child.is_done = True
        if code in (EXIT_OK, EXIT_RELOAD):
            child.failures, child.start_at = 0, 0.0
        elif not child.is_done:
            child.failures = child.failures + 1 if lived < QUICK_SECONDS else 0
            pause = min(0.5 * 2**child.failures, MAX_BACKOFF_SECONDS) if child.failures else 0.0
            child.start_at = time.monotonic() + pause
            logger.error(
                "child %d ended with status %d; started again in %.1f s", child.number, code, pause
            )

    def _is_replaced_after_limit(self) -> bool:
        options = self._options
        recycles = options.max_jobs is not None or options.max_memory_mib is not None
        return recycles and not options.drain and options.max_time is None

    def _kill_if_late(self, child: Child) -> None:
        if self._stopping_since is None or child.process is None:
            return
        allowed = self._options.shutdown_timeout + EXTRA_SECONDS
        if time.monotonic() - self._stopping_since > allowed:
            logger.error("child %d does not stop and is killed", child.number)
            child.process.kill()

    def _seconds_to_wait(self) -> float | None:
        if self._stopping_since is not None:
            return 0.5
        starts = [child.start_at for child in self._children if child.process is None]
        return max(0.0, min(starts) - time.monotonic()) if starts else None

    def _handle(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stopping_since = self._stopping_since or time.monotonic()
            self._send(signal.SIGTERM)
        elif number == signal.SIGQUIT:
            self._stopping_since = self._stopping_since or time.monotonic()
            self._send(signal.SIGQUIT)
        elif number in (signal.SIGUSR1, signal.SIGUSR2):
            self._send(number)
        elif number == signal.SIGHUP:
            logger.info("HUP: the child processes are replaced")
            self._send(signal.SIGHUP)

    def _send(self, number: int) -> None:
        for child in self._children:
            if child.process is not None and child.process.poll() is None:
                child.process.send_signal(number)


def end_with_parent(stop: Callable[[str], None]) -> None:
    """Call *stop* when the supervisor's end of standard input closes."""

    def wait() -> None:
        try:
            while os.read(sys.stdin.fileno(), 1024):
                pass
        except OSError:
            logger.warning("the pipe to the supervisor broke")
        stop("the supervisor is gone")

    threading.Thread(target=wait, name="pgjobs-parent", daemon=True).start()
