"""The chaos test in small: some seconds, a fixed seed, and what does not take long.

By hand it runs ten minutes with everything: `python -m tests.chaos`.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]


def run_chaos(*arguments: str) -> tuple[int, str]:
    """Run `python -m tests.chaos` to its end; return its exit status and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = process.communicate()
    finally:
        process.terminate()  # on SIGTERM it takes its servers and workers along
        process.wait()
    return process.returncode, said


@pytest.mark.time_limit(300)
def test_some_seconds_of_chaos_end_well() -> None:
    status, said = run_chaos(
        *("--minutes", "0.1", "--seed", "7", "--workers", "2", "--clients", "1"),
        *("--only", "kills,pauses,sessions", "--pace", "3"),
    )
    assert status == 0, said
    assert "PASSED: seed 7" in said


def test_a_family_of_faults_that_does_not_exist_is_refused() -> None:
    status, said = run_chaos("--without", "earthquakes")
    assert status == 2
    assert "expected some of rows, tasks, locks" in said
