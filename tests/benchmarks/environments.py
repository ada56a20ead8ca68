"""A virtual environment per system, kept in the cache folder between runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.errors import Unavailable

CANDIDATES = ("python3.12", "python3.13", "python3.14")
WANTED_PYTHON = (3, 12)  # the newest lower bound among the peers (django-ox)


def read_version(python: str) -> tuple[int, int] | None:
    """Return (major, minor) of an interpreter, None if it cannot run."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    if done.returncode != 0:
        return None
    major, minor = done.stdout.split()
    return int(major), int(minor)


def find_python(asked: str | None) -> str:
    """Return the interpreter all environments are made with.

    It is *asked* if given, this one if it is new enough for every peer, else the first
    newer one on the PATH, else this one (peers that need a newer one are skipped).
    """
    if asked is not None:
        if read_version(asked) is None:
            raise SystemExit(f"--python expected a Python interpreter, got {asked!r}.")
        return asked
    if sys.version_info[:2] >= WANTED_PYTHON:
        return sys.executable
    for name in CANDIDATES:
        path = shutil.which(name)
        if path is not None and read_version(path) is not None:
            return path
    return sys.executable


class Environment:
    """One virtual environment with the packages of one system."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        self.base_python = python
        self.python = folder / "bin" / "python"
        self.marker = folder / "installed.json"

    def install(self, requirements: Sequence[str], fingerprint: str) -> None:
        """Make the environment, unless one for the same *fingerprint* is there.

        Raise Unavailable with pip's last words if the packages cannot be installed.
        """
        wanted = [self.base_python, *requirements, fingerprint]
        if self.marker.exists() and json.loads(self.marker.read_text()) == wanted:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.run([self.base_python, "-m", "venv", str(self.folder)])
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        self.run([*pip, *requirements])
        self.marker.write_text(json.dumps(wanted))

    def run(self, command: Sequence[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            errors = [line.strip() for line in lines if "error" in line.lower()]
            raise Unavailable("cannot be installed: " + " ".join(errors or lines[-3:])[:400])

    def versions(self) -> dict[str, str]:
        """Return the installed packages, name in lower case to version."""
        command = [str(self.python), "-m", "pip", "list", "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {row["name"].lower(): row["version"] for row in json.loads(done.stdout)}
