"""Start, pause, stop and weigh the processes of a system."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.benchmarks.errors import MeasurementFailed

STOP_SECONDS = 15.0
TAIL_CHARACTERS = 600


def read_tail(path: Path) -> str:
    """Return the end of a log file, or a remark that it is empty."""
    text = path.read_text(errors="replace") if path.exists() else ""
    return text[-TAIL_CHARACTERS:].strip() or "(no output)"


def run_json(
    command: Sequence[str], environment: Mapping[str, str], directory: Path, seconds: float
) -> Any:
    """Run a client script and return the JSON of its last line.

    Raise MeasurementFailed if it fails or takes longer than *seconds*.
    """
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise MeasurementFailed(
            f"{' '.join(command[1:])} took longer than {seconds:.0f} s"
        ) from None
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        output = (done.stderr or done.stdout)[-TAIL_CHARACTERS:].strip()
        raise MeasurementFailed(f"{' '.join(command[1:])} ended with {done.returncode}: {output}")
    return json.loads(lines[-1])


class WorkerGroup:
    """The worker processes of one measurement, each the leader of a process group."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], directory: Path
    ) -> None:
        with self.log_path.open("ab") as log:
            process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)

    def check(self) -> None:
        """Raise MeasurementFailed with the end of the log if a worker has ended."""
        for process in self.processes:
            code = process.poll()
            if code is not None:
                raise MeasurementFailed(f"a worker ended with {code}: {read_tail(self.log_path)}")

    def signal(self, number: signal.Signals) -> None:
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask the workers to end; kill those still there after STOP_SECONDS."""
        self.resume()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        self.signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.processes.clear()

    def memory(self) -> dict[str, float]:
        """Return RSS and PSS in MiB, summed over all processes of the groups."""
        groups = {process.pid for process in self.processes}
        totals = {"rss": 0.0, "pss": 0.0, "processes": 0.0}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(OSError):
                if os.getpgid(int(entry.name)) in groups:
                    totals["rss"] += read_kilobytes(entry / "status", "VmRSS:") / 1024
                    totals["pss"] += read_kilobytes(entry / "smaps_rollup", "Pss:") / 1024
                    totals["processes"] += 1
        return totals


def read_kilobytes(path: Path, label: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(label):
            return int(line.split()[1])
    return 0
