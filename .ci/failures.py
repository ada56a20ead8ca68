"""Tell shortly what failed: python3 .ci/failures.py LOG...

Each LOG has the output of a stage that failed. Shown are the first failure, in at most 60 lines,
and a line for each failed test, at most 20: what fits below the fold of a log that is cut off.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

LINES = 60
# Of these, what a failed test has logged.
LOGGED = 20
NAMED = 20
WIDTH = 200

SECTION = re.compile(r"={3,} (FAILURES|ERRORS) ={3,}$")
TITLE = re.compile(r"_{3,} .+ _{3,}$")
END = re.compile(r"={3,} ")
CAPTURED = re.compile(r"-{3,} Captured ")
NAMES = re.compile(r"(FAILED|ERROR) \S|.*\bNOT CAUGHT$|.*does not contain .* any more$")


def first_failure(lines: Sequence[str]) -> list[str]:
    """Return the first failure that pytest tells of; without pytest the last lines."""
    started = next((n for n, line in enumerate(lines) if SECTION.match(line)), None)
    if started is None:
        return list(lines[-LINES:])
    title, *rest = lines[started + 1 :]
    block = list(itertools.takewhile(lambda line: not (TITLE.match(line) or END.match(line)), rest))
    at = next((n for n, line in enumerate(block) if CAPTURED.match(line)), len(block))
    logged = block[at:][-LOGGED:]
    # The last lines of a traceback say what went wrong.
    return [title, *block[:at][-(LINES - 1 - len(logged)) :], *logged]


def names_of_failures(lines: Sequence[str]) -> list[str]:
    """Return the lines that name a failed test, or a mutation that no test noticed."""
    return [line for line in lines if NAMES.match(line)]


def tell(logs: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the first failure of the first log, and the failures of all."""
    yield ""
    yield "=== the first failure"
    yield from first_failure(logs[0])
    names = [name for log in logs for name in names_of_failures(log)]
    if names:
        yield ""
        yield "=== failures"
        yield from names[:NAMED]
        if len(names) > NAMED:
            yield f"and {len(names) - NAMED} more"


def main() -> None:
    """Tell what failed in the logs that the command line names."""
    logs = [Path(name).read_text(errors="replace").splitlines() for name in sys.argv[1:]]
    for line in tell(logs):
        print(line[:WIDTH])


if __name__ == "__main__":
    main()
