"""Run the tests again that failed: python3 .ci/unsteady.py STATUS PYTEST...

PYTEST is the command of pytest whose run just ended with STATUS, without the names of tests. When
all tests were run and three or fewer failed, each run of these alone has to pass, three times; then
they are named as unsteady, and the exit status is 0. An unsteady test is a defect, of the test or
of the code, and to be repaired; but on a busy machine, one of ten thousand tests is no reason to
throw away what the others have shown.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FAILED_TESTS = Path(".pytest_cache/v/cache/lastfailed")
MOST = 3
TIMES = 3
# What pytest ends with if tests failed; any other status says that not all of them were run.
TESTS_FAILED = 1


def failed_tests() -> list[str]:
    """Return the tests that failed in the last run, as pytest keeps them."""
    try:
        return sorted(json.loads(FAILED_TESTS.read_text()))
    except FileNotFoundError:
        return []


def main() -> int:
    """Return whether the tests failed again, as an exit status."""
    status, *command = sys.argv[1:]
    if int(status) != TESTS_FAILED:
        print(f"the run ended with {status}: what it has not run may fail, too")
        return int(status)
    failed = failed_tests()
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests to run again; at most {MOST} are taken for unsteady")
        return 1
    for _ in range(TIMES):
        if subprocess.run([*command, *failed], check=False).returncode:
            return 1
    print(f"UNSTEADY, failed once and passed {TIMES} times: {' '.join(failed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
