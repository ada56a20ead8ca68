"""Web servers that may be killed, and the workers over HTTP that they serve."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.chaos import journal as notes
from tests.clients.web import WebProcesses
from tests.factories import make_token
from tests.helpers import ROOT
from tests.http_proxy import HttpProxy

HEARTBEAT_SECONDS = 2.0
WORKERS = 2
KINDS = ("gunicorn", "uvicorn")
# Where an answer may be lost.
ANSWERS = ("/claim", "/results", "/heartbeat", "workers")
STOP_SECONDS = 60.0


class Site:
    """A web server of each kind behind a proxy, and workers that work for them."""

    def __init__(self, folder: Path, journal: str, modules: Sequence[str]) -> None:
        self._folder, self._journal = folder, journal
        pgjobs = {"TASK_MODULES": modules, "HTTP_HEARTBEAT_SECONDS": HEARTBEAT_SECONDS}
        self._web = [WebProcesses(kind, pgjobs=pgjobs) for kind in KINDS]
        self._proxy = HttpProxy([each.backend for each in self._web], "/pgjobs/api/")
        self._token = make_token(verbs=["work"])
        # Whoever kills or replaces something holds it.
        self._lock = threading.Lock()
        self._generation = 0
        self._workers = [self._start() for _ in range(WORKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        self._generation += 1
        name = f"elsewhere.{self._generation}"
        with (self._folder / f"{name}.out").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.elsewhere", self._proxy.url, self._token, name],
                cwd=ROOT,
                env=os.environ | {notes.VARIABLE: self._journal},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill_worker(self, dice: random.Random) -> None:
        """Kill a worker with all that it holds, or ask it to end; start another one."""
        with self._lock:
            worker = self._workers.pop(dice.randrange(WORKERS))
            try:
                if dice.random() < 0.7:
                    worker.kill()
                else:
                    worker.terminate()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        worker.wait(STOP_SECONDS)
            finally:
                worker.kill()
                worker.wait()
                self._workers.append(self._start())

    def kill_web(self, dice: random.Random) -> None:
        """Kill a web server, or a process of it; the other one answers meanwhile."""
        web = dice.choice(self._web)
        with self._lock:
            if dice.random() < 0.5:
                web.kill_child()
            else:
                web.kill()
                web.start()

    def lose_answers(self, dice: random.Random) -> None:
        """Lose the next answers of one kind."""
        self._proxy.lose(dice.choice(ANSWERS), times=dice.randint(1, 4))

    def look_after(self) -> list[str]:
        """Start workers again that have ended, and return what they said: nobody asked for it."""
        if not self._lock.acquire(blocking=False):
            return []
        try:
            ended = [worker for worker in self._workers if worker.poll() is not None]
            for worker in ended:
                self._workers.remove(worker)
                self._workers.append(self._start())
            return [f"a worker over HTTP has ended with {each.returncode}" for each in ended]
        finally:
            self._lock.release()

    def stop_workers(self) -> list[str]:
        """Let the workers end in good order; return what went wrong."""
        for worker in self._workers:
            worker.terminate()
        codes = [worker.wait(STOP_SECONDS) for worker in self._workers]
        return [
            f"a worker over HTTP ended with {code} when it was asked to" for code in codes if code
        ]

    def close(self) -> None:
        """End everything."""
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self._proxy.close()
        for web in self._web:
            with contextlib.suppress(psutil.Error):
                web.close()
