"""What the tests of processes share: the journal, and waiting for what rows say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from django.db import connection

from tests.factories import count_jobs, get_job
from tests.helpers import WAIT_SECONDS, WorkerProcess, wait_until

# Longer than any test: what happens soon does not happen because of a poll.
NEVER = "3600"


class Journal:
    """The file to which jobs append what they do, and the gates that they wait at."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self._path = folder / "journal"

    def lines(self) -> list[str]:
        """Return everything written so far; lines of several processes do not mix."""
        return self._path.read_text().splitlines() if self._path.exists() else []

    def count(self, line: str) -> int:
        """Return how often *line* was written."""
        return self.lines().count(line)

    def wait_for(self, *lines: str, timeout: float = WAIT_SECONDS) -> None:
        """Wait until each of *lines* has been written."""
        wait_until(lambda: set(lines) <= set(self.lines()), timeout=timeout, message=self.lines)

    def open_gate(self, attempt: int | None = None) -> None:
        """Let jobs pass: all of them, or those in their n-th attempt."""
        (Path(self.folder) / ("gate" if attempt is None else f"gate-{attempt}")).touch()


def job_id(job: Any) -> int:
    """Return the id of a TaskResult, or an id."""
    return int(getattr(job, "id", job))


def wait_for_status(
    job: Any, status: str, *, timeout: float = WAIT_SECONDS, worker: WorkerProcess | None = None
) -> SimpleNamespace:
    """Wait until a job (TaskResult or id) has *status*, and return its row."""

    def row_if_so() -> SimpleNamespace | None:
        row = get_job(job_id(job))
        return row if row.status == status else None

    def situation() -> object:
        return f"{get_job(job_id(job))}\n{worker.output() if worker else ''}"

    return wait_until(row_if_so, timeout=timeout, message=situation)


def wait_for_count(count: int, *, timeout: float = WAIT_SECONDS, **columns: Any) -> None:
    """Wait until there are *count* jobs with these values."""
    wait_until(
        lambda: count_jobs(**columns) == count,
        timeout=timeout,
        message=lambda: f"there are {count_jobs(**columns)} jobs with {columns}",
    )


def fetch_rows(query: str, *params: Any) -> list[tuple[Any, ...]]:
    """Return what a query finds in the test database."""
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        return list(cursor.fetchall())


def wait_until_listening(workers: int = 1) -> None:
    """Wait until so many workers have nothing to do and want to be notified."""
    wait_until(
        lambda: (
            fetch_rows("SELECT count(*) FROM pgjobs_worker WHERE listening AND ended_at IS NULL")
            == [(workers,)]
        )
    )


def backends_of(role: str = "%") -> list[int]:
    """Return the server processes behind the workers' own connections."""
    rows = fetch_rows(
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE %s",
        f"pgjobs {role}",
    )
    return [pid for (pid,) in rows]


def terminate(pids: list[int]) -> None:
    """End server processes, as an administrator or a failover does."""
    fetch_rows("SELECT pg_terminate_backend(pid) FROM unnest(%s::integer[]) AS ended (pid)", pids)


def children_of(worker: WorkerProcess) -> list[psutil.Process]:
    """Return the processes that a supervisor has started."""
    return list(psutil.Process(worker.pid).children())


def journal_counts(journal: Journal) -> dict[str, int]:
    """Return line -> how often it was written."""
    lines = journal.lines()
    return {line: lines.count(line) for line in set(lines)}
