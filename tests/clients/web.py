"""Web processes: gunicorn (WSGI) and uvicorn (ASGI), each with children that may be killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.helpers import ROOT, WAIT_SECONDS, database_url, skip, wait_until
from tests.servers import free_port

CHILDREN = 2
TASK_MODULES = ["tests.clients.tasks", "example_project.payroll.paying"]
COMMANDS = {
    "gunicorn": [
        "tests.clients.sites:wsgi",
        f"--workers={CHILDREN}",
        "--threads=8",
        "--worker-tmp-dir=/dev/shm" if Path("/dev/shm").is_dir() else "--log-level=info",
        "--graceful-timeout=2",
    ],
    "uvicorn": ["tests.clients.sites:asgi", f"--workers={CHILDREN}", "--lifespan=off"],
}


class WebProcesses:
    """A server with children, on a port of its own that it keeps over restarts."""

    def __init__(self, kind: str, *, pgjobs: Mapping[str, Any]) -> None:
        if importlib.util.find_spec(kind) is None:
            skip(f"there is no {kind} here")
        self.kind = kind
        self.port = free_port()
        self.backend = f"127.0.0.1:{self.port}"
        self._settings = {
            "ROOT_URLCONF": "tests.http.urls",
            "ALLOWED_HOSTS": ["127.0.0.1"],
            "PGJOBS": {"TASK_MODULES": TASK_MODULES, **pgjobs},
        }
        log, name = tempfile.mkstemp(prefix=f"pgjobs-{kind}-")
        os.close(log)
        self._log = Path(name)
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        where = ["--bind", self.backend] if self.kind == "gunicorn" else ["--port", str(self.port)]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = os.environ | {
            "DATABASE_URL": database_url(),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "PGJOBS_TEST_SETTINGS": json.dumps(self._settings),
            "PYTHONPATH": path,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.kind, *COMMANDS[self.kind], *where],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(lambda: len(self._children()) >= CHILDREN and self._answers(), message=self.log)

    def log(self) -> str:
        """Return what it has written."""
        return self._log.read_text()

    def kill_child(self) -> None:
        """Kill a process that answers requests; its master starts another one."""
        before = {child.pid for child in self._children()}
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        wait_until(
            lambda: len({child.pid for child in self._children()} - {victim}) >= len(before),
            message=self.log,
        )

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)

    def kill(self) -> None:
        """Kill all of its processes."""
        processes = [psutil.Process(self._process.pid), *self._children()]
        for process in processes:
            process.kill()
        self._process.wait(WAIT_SECONDS)
        psutil.wait_procs(processes, WAIT_SECONDS)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process.poll() is None:
            self.kill()
        self._log.unlink(missing_ok=True)

    def _children(self) -> list[psutil.Process]:
        """Return the processes that answer, and not what watches the resources of them."""
        if self._process.poll() is not None:
            return []
        children = psutil.Process(self._process.pid).children()
        return [child for child in children if "resource_tracker" not in " ".join(words_of(child))]

    def _answers(self) -> bool:
        done = subprocess.run(
            [sys.executable, "-c", ASK, f"http://{self.backend}/pgjobs/api/v1/openapi.json"],
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode == 0


ASK = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=20).read()"


def words_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process, nothing of one that has ended."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
