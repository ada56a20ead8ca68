"""The supervisor: starts worker processes, replaces those that end, passes signals on.

Children are new interpreters, not forks, so they share no connection, lock or thread with it.
They run in sessions of their own: Ctrl-C reaches the supervisor alone, which asks them to
stop. Each has one end of a socket as its standard input: it writes a byte when it is ready, and
then others as signs of life; one that is silent for too long is frozen, and killed. When the
supervisor dies, however suddenly, the socket closes and the children stop.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

from django.conf import ENVIRONMENT_VARIABLE, settings

from django_pgjobs.worker.process.exit_status import (
    EXIT_CRASHED,
    EXIT_DISMISSED,
    EXIT_DONE,
    EXIT_OK,
    EXIT_RELOAD,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
)
from django_pgjobs.worker.process.overseer import Overseer
from django_pgjobs.worker.process.parent import READY
from django_pgjobs.worker.process.signal_pipe import SignalPipe, held_signals
from django_pgjobs.worker.safe_log import get_logger
from django_pgjobs.worker.state import Options
from django_pgjobs.worker.stillness import LOOK_SECONDS, Stillness

logger = get_logger("django_pgjobs.worker")

# A child that lived shorter than this waits before it is started again, ever longer.
QUICK_SECONDS = 10.0
MAX_BACKOFF_SECONDS = 30.0
# After so many failures the wait has reached that.
MAX_FAILURES = 6
# Seconds beyond the shutdown timeout before a child is killed.
EXTRA_SECONDS = 20.0
# How often it is checked whether a new child is ready.
READY_LOOK_SECONDS = 0.1
# A child that has been ready counts as frozen after twice its lease and this without a sign.
SILENT_SECONDS = 10.0
CANNOT_START = {EXIT_USAGE, EXIT_UNREACHABLE}


def own_flags(options: Options, number: int, processes: int) -> list[str]:
    """Return the flags in which a child differs from the others, numbered from 1."""
    flags = []
    if options.name:
        name = options.name if processes == 1 else f"{options.name}-{number}"
        flags += ["--name", name]
    if options.health_port is not None:
        flags += ["--health-port", str(options.health_port + number - 1)]
        flags += ["--health-host", options.health_host]
    if options.health_file:
        path = options.health_file
        flags += ["--health-file", path if processes == 1 else f"{path}.{number}"]
    return flags


@dataclass
class Child:
    """One place for a worker process, and the process in it at the moment.

    *is_stale*: it is to be replaced, by order of HUP, when its turn has come. *silence* is that of
    a process that has been ready once, and *signs* is how often something was heard of it.
    *exit_code* is that of the last process that has ended.
    """

    number: int
    process: subprocess.Popen[bytes] | None = None
    channel: socket.socket | None = None
    is_ready: bool = False
    is_stale: bool = False
    silence: Stillness | None = None
    signs: int = 0
    started_at: float = 0.0
    start_at: float = 0.0
    failures: int = 0
    is_done: bool = False
    exit_code: int | None = None


class Supervisor:
    """Keeps *processes* children running `runjobs` with *flags*."""

    def __init__(
        self,
        flags: list[str],
        options: Options,
        *,
        processes: int,
        overseer: Overseer | None = None,
    ) -> None:
        self._flags = flags
        self._options = options
        self._overseer = overseer or Overseer()
        self._children = [Child(number) for number in range(1, processes + 1)]
        self._stopping_since: float | None = None
        # Has any child ever been ready?
        self._has_worked = False

    def run(self) -> int:
        """Run until a signal, or until every child is done; return the exit status."""
        pipe = SignalPipe(extra=(signal.SIGCHLD,))
        with pipe.installed():
            while not self._is_done():
                self._overseer.tell_alive()
                for child in self._children:
                    self._look_after(child)
                self._replace_next()
                for number in pipe.wait(self._seconds_to_wait()):
                    self._handle(number)
        return self._exit_status()

    def _is_done(self) -> bool:
        return all(child.is_done for child in self._children)

    def _exit_status(self) -> int:
        # 76 asks the supervisor for a new child; a supervisor that ends was told to.
        good = {EXIT_DISMISSED, EXIT_DONE, EXIT_RELOAD}
        if self._has_worked:
            # A child could not start lately, but the supervisor itself did, long before.
            good |= CANNOT_START
        last = [child.exit_code for child in self._children if child.exit_code is not None]
        codes = [EXIT_OK if code in good else code for code in last]
        if -signal.SIGKILL in codes:
            return EXIT_CRASHED
        return max((code for code in codes if code > 0), default=EXIT_OK)

    def _look_after(self, child: Child) -> None:
        if child.process is not None:
            code = child.process.poll()
            if code is None:
                self._kill_if_late(child)
                self._listen(child)
                self._kill_if_frozen(child)
                return
            self._note_exit(child, code)
        if child.is_done or self._stopping_since is not None:
            child.is_done = True
        elif time.monotonic() >= child.start_at:
            self._start(child)

    def _start(self, child: Child) -> None:
        command = [sys.executable, "-m", "django", "runjobs", *self._flags, "--child"]
        command += own_flags(self._options, child.number, len(self._children))
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            ENVIRONMENT_VARIABLE: settings.SETTINGS_MODULE,
        }
        child.started_at = time.monotonic()
        child.is_stale = False
        child.channel, end = socket.socketpair()
        child.channel.setblocking(False)
        with held_signals(), end:
            child.process = subprocess.Popen(  # noqa: S603 - our own command line
                command, env=environment, stdin=end.fileno(), start_new_session=True
            )

    def _listen(self, child: Child) -> None:
        """Note what the child has sent since the last look."""
        if child.channel is None:
            return
        with suppress(OSError):  # nothing is said yet
            said = child.channel.recv(4096)
            child.signs += len(said)
            if READY in said:
                child.is_ready, child.silence = True, Stillness()
                self._note_worked()

    def _note_worked(self) -> None:
        """Retry the places that were given up before any child was ready."""
        if self._has_worked:
            return
        self._has_worked = True
        self._overseer.tell_ready()
        for child in self._children:
            if child.is_done and child.exit_code in CANNOT_START:
                logger.info("child %d is tried again, as another one works", child.number)
                child.is_done, child.failures = False, MAX_FAILURES
                child.start_at = time.monotonic() + MAX_BACKOFF_SECONDS

    def _kill_if_frozen(self, child: Child) -> None:
        if child.silence is None or child.process is None:
            return
        silent = child.silence.look(child.signs)
        if silent > 2 * self._options.lease + SILENT_SECONDS:
            child.silence = None
            logger.error(
                "child %d has given no sign of life for %.0f s, as if it were frozen; it is killed",
                child.number,
                silent,
            )
            child.process.kill()

    def _replace_next(self) -> None:
        """Ask one stale child to end, if every other place has a worker that takes jobs."""
        stale = self._stale()
        if not stale or not all(child.is_ready or child.is_done for child in self._children):
            return
        stale[0].is_stale = stale[0].is_ready = False
        self._send(signal.SIGHUP, stale[:1])

    def _stale(self) -> list[Child]:
        return [child for child in self._children if child.is_stale and not child.is_done]

    def _note_exit(self, child: Child, code: int) -> None:
        # Nothing has woken the supervisor when they became ready.
        for each in self._children:
            self._listen(each)
        if child.channel is not None:
            child.channel.close()
        child.process = child.channel = child.silence = None
        child.is_ready = False
        child.exit_code = code
        lived = time.monotonic() - child.started_at
        if code == EXIT_DONE:
            child.is_done = not self._is_replaced_after_limit()
        elif code == EXIT_DISMISSED:
            child.is_done = True
            logger.info("child %d was asked to stop and is not started again", child.number)
        elif code in CANNOT_START and lived < QUICK_SECONDS:
            self._note_vain_start(child, code)
        if code in (EXIT_DONE, EXIT_RELOAD):
            child.failures, child.start_at = 0, 0.0
        elif not child.is_done and self._stopping_since is None:
            child.failures = child.failures + 1 if lived < QUICK_SECONDS else 0
            pause = min(0.5 * 2**child.failures, MAX_BACKOFF_SECONDS) if child.failures else 0.0
            child.start_at = time.monotonic() + pause
            logger.error(
                "child %d ended with status %d; started again in %.1f s", child.number, code, pause
            )

    def _note_vain_start(self, child: Child, code: int) -> None:
        """Replace no more children; give the place up if none has ever worked."""
        if self._stale():
            logger.error("the new child process cannot start; the others stay as they are")
        for each in self._children:
            each.is_stale = False
        if not self._has_worked:
            child.is_done = True
            logger.error(
                "child %d ended with status %d; it cannot start and is given up", child.number, code
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
        if self._is_done():
            return 0.0
        if self._stopping_since is not None:
            return 0.5
        if self._stale():
            return READY_LOOK_SECONDS
        starts = [
            child.start_at
            for child in self._children
            if child.process is None and not child.is_done
        ]
        waits = [max(0.0, min(starts) - time.monotonic())] if starts else []
        if self._overseer.is_watching or any(child.process for child in self._children):
            waits.append(LOOK_SECONDS)
        return min(waits, default=None)

    def _handle(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._note_end()
            self._send(signal.SIGTERM, self._children)
        elif number == signal.SIGQUIT:
            self._note_end()
            self._send(signal.SIGQUIT, self._children)
        elif number in (signal.SIGUSR1, signal.SIGUSR2):
            self._send(number, self._children)
        elif number == signal.SIGHUP:
            logger.info("HUP: the child processes are replaced, one after the other")
            for child in self._children:
                child.is_stale = True

    def _note_end(self) -> None:
        self._stopping_since = self._stopping_since or time.monotonic()
        self._overseer.tell_stopping()

    def _send(self, number: int, children: list[Child]) -> None:
        for child in children:
            if child.process is not None and child.process.poll() is None:
                child.process.send_signal(number)
