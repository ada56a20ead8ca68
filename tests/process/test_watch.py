"""Many idle workers, of which one is notified: jobs begin, whoever is killed or frozen."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable

import pytest

from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.support import NEVER, Journal, children_of, fetch_rows

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
LISTENERS = "SELECT pid FROM pgjobs_worker WHERE listening AND ended_at IS NULL ORDER BY id"
WAITS = (
    "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def wait_until_parked(workers: int) -> None:
    """Wait until all but one of so many workers park."""
    wait_until(
        lambda: len(fetch_rows(WAITS)) == workers - 1,
        message=lambda: f"{len(fetch_rows(WAITS))} park",
        timeout=60,
    )


def listener(workers: int) -> int:
    """Return which one of so many workers, which have had no job yet, is notified."""
    wait_until_parked(workers)
    return int(wait_until(lambda: [pid for (pid,) in fetch_rows(LISTENERS)])[0])


def others_than(gone: set[int], supervisor: WorkerProcess) -> list[int]:
    return [child.pid for child in children_of(supervisor) if child.pid not in gone]


def test_every_job_begins_whenever_it_is_enqueued_and_whoever_is_killed(
    start: Start, journal: Journal
) -> None:
    """Nobody polls."""
    chance = random.Random(7)
    supervisor = start("--poll-interval", NEVER, "--processes", "8", "-c", "1")
    doomed = [listener(8)]
    names: list[str] = []
    for round_number in range(12):
        for _ in range(chance.choice((1, 1, 2, 12))):
            names.append(f"job {len(names)}")
            tasks.note.enqueue(journal.folder, names[-1])
        if chance.random() < 0.5:
            journal.wait_for(*names)
        if round_number % 4 == 3:
            journal.wait_for(*names)
            wait_until_parked(8)
            for pid in doomed:
                os.kill(pid, signal.SIGKILL)
            gone = set(doomed)
            wait_until(lambda gone=gone: len(others_than(gone, supervisor)) == 8)
            doomed = chance.sample(others_than(gone, supervisor), 3)
    journal.wait_for(*names)


def test_if_the_one_on_watch_is_frozen_the_poll_finds_jobs(start: Start, journal: Journal) -> None:
    start("--poll-interval", "2", "--processes", "3", "-c", "1")
    frozen = listener(3)
    os.kill(frozen, signal.SIGSTOP)
    try:
        tasks.note.enqueue(journal.folder, "found")
        journal.wait_for("found")
    finally:
        os.kill(frozen, signal.SIGCONT)
