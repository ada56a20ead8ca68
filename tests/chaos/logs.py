"""What workers may say in their logs, and why; everything else above INFO is a finding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

# With a traceback: jobs fail on purpose, and the project's code does what it should not.
ALLOWED_TRACEBACKS = r"^FAIL |its exception cannot be judged"
# Each with its reason; matched anywhere in the message.
ALLOWED = {
    r"^rescue ": "workers are killed",
    r"^(RETRY|FAIL|lost) ": "jobs fail and are taken away on purpose",
    r"(?s)^task=.* is unknown here, its jobs wait ": "rows are odd",
    r"statement failed: ": "servers go away, and rows are odd",
    r"the server refuses it, it is passed over|cannot be rescued, it is passed over": (
        "rows are odd, and refused by triggers"
    ),
    r"the server refuses its jobs: all of them wait": "a trigger refuses many of them",
    r"the dependency behind .* is not resolved: ": "rows and tables are locked",
    r"a turn was refused: ": "rows are locked, odd, and refused by triggers",
    r"cannot be counted, it is left alone: ": "a trigger refuses to cancel their jobs",
    r"of the rate limit 'chaos' at once, whose burst is|, which does not exist: they cannot": (
        "rows are odd"
    ),
    r"lease not renewed: |lease renewed, but ": "servers go away",
    r"as if it were frozen; it is killed": "workers are stopped past their lease",
    r"does not end: this process is given up|^left ": (
        "jobs wait in statements for locks of users, or for a server that is gone"
    ),
    r"lost its lease: ": "workers are stopped past their lease",
    r"no lease for \d+ s": "servers stay away",
    r"is lost: its lease ran out": "workers are killed",
    r"could not say goodbye: ": "servers go away",
    r"upkeep failed: |^statistics are late: ": "servers go away",
    r"cannot rescue: canceling statement due to lock timeout": "tables are locked",
    r"cannot rescue: a trigger of the project objects": "a trigger refuses rows",
    r"^schedules are not looked at: ": "servers go away",
    r"^schedule=.* (missed|skipped|failed|is put off for) ": (
        "servers stay away, policies say so, tables are locked, and triggers refuse rows"
    ),
    r"^schedule=.* \d{4}-\d\d-\d\d \S+ \w+: ": "an enqueue was refused, as the line before says",
    r"^schedule=.* is not as the code says yet: ": "rows and tables are locked",
    r"^schedule=broken It is not planned: ": "its expression is none",
    r"pruning failed: ": "servers go away",
    r"does not answer; cut": "networks lose what they carry",
    r"timed out and is interrupted": "one of the tasks takes too long",
    r"gave back \d+ jobs? (of a claim|that it had not claimed)": "answers get lost",
    r"dropped \d+ jobs? of a lost lease": "workers are stopped past their lease",
    r"(which does not exist|whose burst is \d+): they cannot start": "rows are odd",
    r"outcome cannot be written|refuses its outcome": "rows are odd",
    r"(outcome=\w+ not written: an|; the) answer was lost": "answers get lost",
    ALLOWED_TRACEBACKS: "some exceptions are nasty",
    r"not written": "jobs are taken away from attempts",
    r"child \d+ ended with status (-9|-15|3|75|76);": (
        "children are killed, told to end while they start, or start without a server"
    ),
    r"the new child process cannot start": "there is no server when HUP asks for new children",
    r"could not give the jobs back": "servers go away",
    r"to be given back now: ": "workers are stopped",
    r"error ignored (terminating|exiting|in rollback) ": "the driver, of connections that broke",
    r"^no task and no waiting job uses the queue ": "its jobs come later",
    r"left a transaction open|could not be cleaned": "connections are ended under jobs",
}
# Lines that are no events: why `runjobs` could not start, which libpq says in several lines.
PLAIN = (
    r"^$|^CommandError: "
    r"|^\s*(Is the server running|connection to|This probably means|before or while processing)"
    r"|^LINE \d+: |^ *\^|^Multiple connection attempts failed|^- host: |^DETAIL: "
    r"|Start it, or correct DATABASES"
)
# An interrupt that arrives while the driver calls back out of C is printed and dropped there; the
# watchdog looks whether the job ends. And Django's cursor on the server is closed by the garbage
# collector, which finds the connection or the transaction gone.
DROPPED = (
    r"Exception ignored in: .*(LeaseLost|JobReleased|JobCancelled|JobTimeout"
    r"|cursor_iter .*psycopg\.(OperationalError|errors\.(InvalidCursorName|AdminShutdown)))"
)
QUIET = {"DEBUG", "INFO"}


def find_unexpected_lines(name: str, lines: Iterable[str]) -> list[str]:
    """Return the lines of a log that nothing explains, and all tracebacks of the worker's own.

    A traceback is expected with the failure of a job only.
    """
    found = []
    block: list[str] = []
    for line in [*lines, "{}"]:
        entry = parse(line)
        if entry is None:
            block += [] if re.search(PLAIN, line) else [line]
            continue
        text = "\n".join(block)
        if text and not re.search(DROPPED, text, re.DOTALL):
            found.append(f"{name}: no event: {text[-1500:]}")
        block.clear()
        message = str(entry.get("message"))
        if "traceback" in entry and not re.search(ALLOWED_TRACEBACKS, message):
            found.append(f"{name}: {message[:300]}\n{entry['traceback'][-1500:]}")
        elif entry.get("level", "INFO") not in QUIET and not is_allowed(message):
            found.append(f"{name}: {entry.get('level')} {message[:300]}")
    return found


def parse(line: str) -> dict[str, Any] | None:
    """Return the event of a line, None if it is none."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def group(lines: Iterable[str]) -> list[str]:
    """Return one line of each kind and how many are like it but for names and numbers."""
    kinds: dict[str, list[str]] = {}
    for line in lines:
        kinds.setdefault(re.sub(r"crew[\d.-]+|0x[0-9a-f]+|\d+", "#", line), []).append(line)
    return [f"{alike[0]} ({len(alike)} times)" for alike in kinds.values()]


def is_allowed(message: str) -> bool:
    """Return whether there is a reason for a message."""
    return any(re.search(pattern, message) for pattern in ALLOWED)
