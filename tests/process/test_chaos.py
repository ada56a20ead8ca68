"""The chaos test in small: some seconds, a fixed seed, and what does not take long.

By hand it runs ten minutes with everything: `python -m tests.chaos`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]


def run_chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m tests.chaos` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos", *arguments],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("DJANGO")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.time_limit(300)
def test_some_seconds_of_chaos_end_well() -> None:
    done = run_chaos(
        *("--minutes", "0.1", "--seed", "7", "--workers", "2", "--clients", "1"),
        *("--only", "kills,pauses,sessions", "--pace", "3"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASSED: seed 7" in done.stdout


def test_a_family_of_faults_that_does_not_exist_is_refused() -> None:
    done = run_chaos("--without", "earthquakes")
    assert done.returncode == 2
    assert "expected some of rows, locks" in done.stderr
