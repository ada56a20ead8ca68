"""Make mutations in copies of the project, several at once, and see whether tests fail there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from example_project.database import database_settings

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("django_pgjobs", "example_project", "tests", "pyproject.toml", "README.md", "docs")
SECONDS = 240
# A mutated test may hang. None that guards a mutation takes half as long otherwise.
TEST_SECONDS = 60


@dataclass(frozen=True)
class Mutation:
    """Replace *old* by *new* in *file*; one of *tests* must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def survivors_of(mutations: Sequence[Mutation], *, at_once: int) -> list[str]:
    """Return the names of the mutations that no test notices; prints each as it is done."""
    # The server is up until this process ends, whoever comes and goes.
    database_settings(is_throwaway=True)
    with tempfile.TemporaryDirectory(prefix="pgjobs-mutations-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(at_once):
            copies.put(make_copy(Path(folder) / str(number)))

        def is_caught_somewhere(mutation: Mutation) -> bool:
            copy = copies.get()
            try:
                return is_caught(mutation, copy)
            finally:
                copies.put(copy)

        # Those with real processes take longest: first, so that none is left at the end.
        ordered = sorted(mutations, key=lambda mutation: "process" not in str(mutation.tests))
        with ThreadPoolExecutor(at_once) as pool:
            caught = list(pool.map(is_caught_somewhere, ordered))
    return [mutation.name for mutation, seen in zip(ordered, caught, strict=True) if not seen]


def make_copy(copy: Path) -> Path:
    """Copy the project, without what running it left behind; return where it is.

    Times are kept, so that what Python has compiled of a file is valid when the file is back.
    """
    ignored = shutil.ignore_patterns("__pycache__", ".postgres")
    copy.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=ignored)
        elif source.exists():
            shutil.copy2(source, copy / name)
    return copy


def is_caught(mutation: Mutation, copy: Path) -> bool:
    """Does a test fail with the mutation? Prints which, and how long it took."""
    started = time.monotonic()
    path = copy / mutation.file
    text = path.read_text()
    if mutation.old not in text:
        print(f"{mutation.name}: {mutation.file} does not contain {mutation.old!r} any more")
        return False
    path.write_text(text.replace(mutation.old, mutation.new))
    try:
        verdict, output = run_tests(copy, mutation.tests)
    finally:
        shutil.copy2(ROOT / mutation.file, path)
    seconds = time.monotonic() - started
    print(f"{mutation.name:40} {seconds:5.1f} s  {verdict or 'NOT CAUGHT'}", flush=True)
    if not verdict:
        print(output[-4000:])
    return bool(verdict)


def run_tests(copy: Path, tests: tuple[str, ...]) -> tuple[str, str]:
    """Run some tests of the copy until one fails; return which did, or "", and the output."""
    environment = os.environ | {
        "PGJOBS_DATA_DIR": os.environ.get("PGJOBS_DATA_DIR", str(ROOT / ".postgres")),
        "PGJOBS_TEST_SECONDS": str(TEST_SECONDS),
        "PYTHONPATH": str(copy),
    }
    command = [
        *(sys.executable, "-m", "pytest", "-x", "-q", "-rf"),
        *("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", *tests),
    ]
    try:
        result = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired as error:
        return "", f"not done within {SECONDS} s: {error.stdout!r}"
    failed = [line for line in result.stdout.splitlines() if line.startswith("FAILED")]
    is_failure = result.returncode == 1 and failed
    return failed[0] if is_failure else "", result.stdout + result.stderr
