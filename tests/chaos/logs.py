"""What workers may say in their logs, and why; everything else above INFO is a finding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

# Each with its reason; matched anywhere in the message.
ALLOWED = {
    r"^(RETRY|FAIL|lost|unknown) ": "jobs fail, are taken away, and are unknown here on purpose",
    r"statement failed: ": "servers go away, and rows are odd",
    r"a turn was refused: ": "rows are locked, odd, and refused by triggers",
    r"lease not renewed: ": "servers go away",
    r"lost its lease: ": "workers are stopped past their lease",
    r"no lease for \d+ s": "servers stay away",
    r"rescued from worker #": "workers are killed",
    r"is lost: its lease ran out": "workers are killed",
    r"could not say goodbye: ": "servers go away",
    r"listening failed, polling meanwhile": "servers go away",
    r"pruning failed: ": "servers go away",
    r"does not answer; cut": "networks lose what they carry",
    r"timed out and is interrupted": "one of the tasks takes too long",
    r"gave back \d+ jobs of a claim": "answers get lost",
    r"dropped \d+ jobs of a lost lease": "workers are stopped past their lease",
    r"outcome (cannot be written|is not written)|refuses its outcome": "rows are odd",
    r"not written": "jobs are taken away from attempts",
    r"child \d+ ended with status (-9|-15|3|75|76);": (
        "children are killed, told to end while they start, or start without a server"
    ),
    r"could not give the jobs back": "servers go away",
    r"jobs go back now": "workers are stopped",
    r"error ignored (terminating|in rollback) ": "the driver, of connections that broke",
    r"left a transaction open|could not be cleaned": "connections are ended under jobs",
}
# Lines that are no events: what `runjobs` prints when it starts, and why it could not, which
# libpq says in several lines.
PLAIN = (
    r"^django-pgjobs |^(queues|tasks|listen) {2}|^Ctrl-C |^WARNING no task |^$|^CommandError: "
    r"|^\s*(Is the server running|connection to|This probably means|before or while processing)"
    r"|Start it, or correct DATABASES"
)
QUIET = {"DEBUG", "INFO"}


def find_unexpected_lines(name: str, lines: Iterable[str]) -> list[str]:
    """Return the lines of a log that nothing explains, and all tracebacks of the worker's own.

    A traceback is expected with the failure of a job only, and there it is not logged.
    """
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            if not re.search(PLAIN, line):
                found.append(f"{name}: not an event: {line[:300]}")
        elif "traceback" in entry:
            found.append(f"{name}: {entry['message'][:300]}\n{entry['traceback'][-1500:]}")
        elif entry.get("level") not in QUIET and not is_allowed(str(entry.get("message"))):
            found.append(f"{name}: {entry.get('level')} {str(entry.get('message'))[:300]}")
    return found


def is_allowed(message: str) -> bool:
    """Return whether there is a reason for a message."""
    return any(re.search(pattern, message) for pattern in ALLOWED)
