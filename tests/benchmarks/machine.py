"""Say what the benchmarks ran on."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]


def read_field(path: str, label: str) -> str:
    """Return the value of the first line of a /proc file that starts with *label*."""
    with suppress(OSError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(label):
                return line.partition(":")[2].strip()
    return "unknown"


def describe_revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def describe_machine(python: str) -> dict[str, str]:
    version = subprocess.run([python, "--version"], capture_output=True, text=True)
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": describe_revision(),
        "CPU": f"{os.cpu_count()} x {read_field('/proc/cpuinfo', 'model name')}",
        "memory": read_field("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()}",
        "Python": version.stdout.strip().removeprefix("Python "),
        "load average at the start": load,
    }
