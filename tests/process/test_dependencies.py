"""Dependencies of jobs whose worker is killed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers import WorkerProcess
from tests.process import tasks
from tests.process.support import Journal, fetch_rows, wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
SHORT_LEASE = ("--lease-seconds", "1")


def test_a_predecessor_that_dies_for_good_has_its_effect(start: Start, journal: Journal) -> None:
    """S1.15: found by the rescue, whoever does it."""
    victim = start(*SHORT_LEASE)
    once = tasks.pass_gate_once.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    cancelled = tasks.note.using(after=once).enqueue(journal.folder, "cancelled")
    run = tasks.note.using(after=once, after_failure="run").enqueue(journal.folder, "run")
    victim.kill()
    start(*SHORT_LEASE)
    assert wait_for_status(run, "successful").attempts == 1
    note = wait_for_status(cancelled, "cancelled").note
    assert note == f"cancelled: job {once.id}, which it waited for, failed"
    assert journal.lines() == ["start job 1", "run"]


def test_a_predecessor_that_is_rescued_is_waited_for_until_its_second_end(
    start: Start, journal: Journal
) -> None:
    """S1.15."""
    victim = start(*SHORT_LEASE)
    first = tasks.pass_gate.enqueue(journal.folder, "job")
    journal.wait_for("start job 1")
    last = tasks.note.using(after=first).enqueue(journal.folder, "last")
    victim.kill()
    start(*SHORT_LEASE, "--processes", "2")
    journal.wait_for("start job 2")
    assert journal.count("last") == 0
    journal.open_gate()
    wait_for_status(last, "successful")
    assert journal.lines() == ["start job 1", "start job 2", "end job 2", "last"]
    assert fetch_rows("SELECT FROM pgjobs_dependency") == []
