"""The file to which clients, tasks and faults append what they have done, one object a line.

A line is written after what it tells of is certain: `enqueued` after the commit, `end` before
the task returns. Each is one write with O_APPEND, so lines do not mix and outlive a kill.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tests.tasks import append_line

# How a worker's tasks know where to write.
VARIABLE = "PGJOBS_CHAOS_JOURNAL"

ENQUEUED = "enqueued"  # committed: ids, tokens
ROLLED_BACK = "rolled back"  # tokens of jobs that must not be there
UNSURE = "unsure"  # tokens; the connection broke, so nobody knows
BEGIN, END = "begin", "end"  # an attempt: token, job
DYING = "dying"  # a task is about to kill its process
DIRTY = "dirty"  # an odd row: ids, what, may_wait
STOPPED = "stopped"  # a workflow was cancelled, or is about to be: ids
FAULT = "fault"  # what, and how long


class Entry(NamedTuple):
    """One line; *token* names what was enqueued, wherever it comes to light again."""

    kind: str
    at: float = 0.0
    token: str = ""
    job: int = 0
    ids: tuple[int, ...] = ()
    tokens: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    what: str = ""
    may_wait: bool = False
    process: int = 0


class Journal:
    """Appends to the file of this run, or of the worker that this process is."""

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = str(path or os.environ[VARIABLE])

    def write(self, kind: str, **facts: Any) -> None:
        """Append an entry, made now."""
        append_line(self.path, json.dumps({"kind": kind, "at": time.time(), **facts}))

    def read(self) -> list[Entry]:
        """Return everything that was written."""
        if not Path(self.path).exists():
            return []
        return parse(Path(self.path).read_text().splitlines())


def parse(lines: Iterable[str]) -> list[Entry]:
    """Return the entries of the lines of a journal."""
    entries = []
    for line in lines:
        facts = json.loads(line)
        for name in ("ids", "tokens", "after"):
            facts[name] = tuple(facts.get(name, ()))
        entries.append(Entry(**facts))
    return entries
