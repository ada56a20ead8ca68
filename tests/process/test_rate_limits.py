"""Real workers take the same rate limit inside their jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from django_pgjobs import acquire, cancel
from django_pgjobs.control import rate_limits
from django_pgjobs.models import RateLimit, RateState, Worker
from tests.factories import get_job
from tests.helpers import ROOT, WorkerProcess, database_url, wait_until
from tests.process import rate_tasks
from tests.process.support import Journal, children_of, job_id, wait_for_status
from tests.windows import largest_window

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

HOUR = 3600.0
MODULES = (rate_tasks.__name__,)


@pytest.fixture(autouse=True)
def _no_session_stays_open() -> Iterator[None]:
    yield
    rate_limits.close_sessions()


@pytest.fixture
def used_up() -> str:
    """A key whose next token comes in an hour."""
    RateLimit.objects.create(name="used-up", count=1, period=HOUR)
    acquire("used-up")
    return "used-up"


class Turn:
    """One line of the journal."""

    def __init__(self, line: str) -> None:
        _, granted_at, noted_at, pid = line.split()
        self.granted_at = datetime.fromisoformat(granted_at)
        self.noted_at = float(noted_at)
        self.pid = int(pid)


def read_turns(journal: Journal) -> list[Turn]:
    return [Turn(line) for line in journal.lines() if line.startswith("grant ")]


def test_eight_processes_never_exceed_one_limit_though_one_is_killed(
    start: Start, journal: Journal
) -> None:
    """S4.12, S4.25-S4.27: in no window, and nobody starts before it is his turn."""
    RateLimit.objects.create(name="api", count=30, period=0.5, burst=3)
    worker = start("--processes", "8", "-c", "1", modules=MODULES)
    # Before all of them are there, one could end its job and take that of another.
    wait_until(lambda: Worker.objects.count() == 8)
    rate_tasks.take_for.enqueue_many((journal.folder, "api:1", 4.0) for _ in range(8))
    wait_until(lambda: len({turn.pid for turn in read_turns(journal)}) == 8)
    victim = next(child for child in children_of(worker) if child.pid == read_turns(journal)[0].pid)
    victim.send_signal(signal.SIGKILL)
    wait_until(lambda: len([line for line in journal.lines() if line.startswith("done")]) == 7)
    turns = read_turns(journal)
    grants = [(turn.granted_at, 1) for turn in turns]
    assert len(grants) > 60
    assert largest_window(grants, timedelta(seconds=0.5)) <= 30
    # The clocks of server and journal are the same; a millisecond for its being slewed.
    assert all(turn.noted_at > turn.granted_at.timestamp() - 0.001 for turn in turns)


def test_async_jobs_take_turns(start: Start, journal: Journal) -> None:
    RateLimit.objects.create(name="api", count=10, period=1, burst=1)
    start("-c", "1", modules=MODULES)
    rate_tasks.take_async.enqueue_many((journal.folder, "api") for _ in range(6))
    wait_until(lambda: len(read_turns(journal)) == 6)
    instants = sorted(turn.granted_at for turn in read_turns(journal))
    assert instants[-1] - instants[0] >= timedelta(seconds=0.5)


def test_a_job_that_waits_for_its_turn_can_be_cancelled(
    start: Start, journal: Journal, used_up: str
) -> None:
    start("-c", "1", modules=MODULES)
    job = rate_tasks.wait_for_turn.enqueue(journal.folder, used_up)
    before = RateState.objects.get().next_free
    wait_until(lambda: RateState.objects.get().next_free > before)
    assert cancel(job)
    wait_for_status(job, "cancelled")


def test_a_job_that_waits_for_its_turn_is_released_at_shutdown(
    start: Start, journal: Journal, used_up: str
) -> None:
    worker = start("-c", "1", "--shutdown-timeout", "0.1", modules=MODULES)
    job = rate_tasks.wait_for_turn.enqueue(journal.folder, used_up)
    before = RateState.objects.get().next_free
    wait_until(lambda: RateState.objects.get().next_free > before)
    assert worker.stop() == 0
    row = get_job(job_id(job))
    assert (row.status, row.note) == ("ready", "released at shutdown")


def test_a_job_does_not_wait_for_a_turn_that_comes_after_its_timeout(
    start: Start, journal: Journal, used_up: str
) -> None:
    before = RateState.objects.get().next_free
    start("-c", "1", modules=MODULES)
    job = rate_tasks.wait_with_timeout.enqueue(journal.folder, used_up)
    row = wait_for_status(job, "failed")
    assert row.errors[-1]["exception_class"] == "django_pgjobs.exceptions.RateLimited"
    assert RateState.objects.get().next_free == before


FORK = """
import os
import django
django.setup()
from django_pgjobs import acquire
from django_pgjobs.control import rate_limits

def take():
    acquire("api")
    return rate_limits.get_session().connection.open().info.backend_pid

mine = take()
reading, writing = os.pipe()
if os.fork() == 0:
    os.write(writing, str(take()).encode())
    os._exit(0)
os.wait()
assert int(os.read(reading, 20)) != mine, "the child used its parent's session"
assert take() == mine, "the child ended its parent's session"
"""


def test_a_forked_process_has_a_session_of_its_own() -> None:
    RateLimit.objects.create(name="api", count=5, period=HOUR, burst=5)
    variables = {"DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": database_url()}
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        env=os.environ | variables | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
