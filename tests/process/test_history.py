"""Ten seconds of kills, pauses and cuts, and a history that must add up afterwards."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.factories import count_jobs
from tests.helpers import WorkerProcess, wait_until
from tests.models import Effect
from tests.process import tasks
from tests.process.support import Journal, backends_of, fetch_rows, terminate, wait_for_count

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
]

Start = Callable[..., WorkerProcess]

# A job that is finished moves to the other partition; that is noted every time it happens.
NOTE_FINISHES = """
CREATE TABLE tests_finish (job_id bigint, status text);
CREATE FUNCTION tests_note_finish() RETURNS trigger LANGUAGE plpgsql
SET search_path = public AS $$
BEGIN
    INSERT INTO tests_finish VALUES (NEW.id, NEW.status);
    RETURN NULL;
END $$;
CREATE TRIGGER tests_note_finish AFTER INSERT ON pgjobs_job_finished
    FOR EACH ROW EXECUTE FUNCTION tests_note_finish();
"""
FORGET_FINISHES = """
DROP TRIGGER tests_note_finish ON pgjobs_job_finished;
DROP FUNCTION tests_note_finish;
DROP TABLE tests_finish;
"""


@pytest.fixture
def finishes(open_connection: Callable[..., psycopg.Connection]) -> Iterator[Callable[[], Counter]]:
    """Count how often each job was finished: `finishes()`."""
    open_connection().execute(NOTE_FINISHES)
    yield lambda: Counter(fetch_rows("SELECT job_id, status FROM tests_finish"))
    open_connection().execute(FORGET_FINISHES)


class Disorder:
    """Two workers, and everything that may happen to one of them."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self.workers = [self._start_one() for _ in range(2)]

    def _start_one(self) -> WorkerProcess:
        return self._start("-c", "3", "--lease-seconds", "1", "--shutdown-timeout", "0.05")

    def replace(self, number: int) -> None:
        """Start a worker in the place of one that ended."""
        self.workers[number] = self._start_one()

    def kill(self, number: int) -> None:
        """End a worker in the middle of everything."""
        self.workers[number].kill()
        self.replace(number)

    def stop(self, number: int) -> None:
        """Deploy: running jobs hardly get the time to finish."""
        assert self.workers[number].stop(signal.SIGTERM) == 0
        self.replace(number)

    def pause(self, number: int) -> None:
        """Freeze a worker until others have taken its jobs, and let it go on."""
        worker = self.workers[number]
        worker.pause()
        lost = "SELECT FROM pgjobs_worker WHERE pid = %s AND ended_at IS NOT NULL"
        wait_until(lambda: fetch_rows(lost, worker.pid))
        worker.resume()

    def cut(self, number: int) -> None:
        """End all connections of all workers, the jobs' own excepted."""
        terminate(backends_of())


def test_every_job_is_run_and_finished_exactly_once_whatever_happens(
    start: Start, journal: Journal, finishes: Callable[[], Counter]
) -> None:
    """S1.4, S1.12, S2.2, S3.6, S4.24."""
    disorder = Disorder(start)
    plain: set[str] = set()
    atomic: set[str] = set()
    steps = [disorder.kill, disorder.cut, disorder.pause, disorder.stop, disorder.cut]
    for number, step in enumerate(steps * 2):
        plain |= {f"plain {number} {item}" for item in range(30)}
        atomic |= {f"atomic {number} {item}" for item in range(15)}
        tasks.note.enqueue_many((journal.folder, f"plain {number} {i}", 0.02) for i in range(20))
        tasks.note_async.enqueue_many(
            (journal.folder, f"plain {number} {i}", 0.02) for i in range(20, 30)
        )
        tasks.record_slowly.enqueue_many((f"atomic {number} {i}", 0.02) for i in range(15))
        done = count_jobs(status="successful")
        wait_until(lambda done=done: count_jobs(status="successful") > done + 5)
        step(number % 2)
    total = len(plain) + len(atomic)
    wait_for_count(total, status="successful", timeout=60)
    assert count_jobs() == total
    # At least once outside the database, exactly once in it.
    assert set(journal.lines()) == plain
    assert Counter(Effect.objects.values_list("key", flat=True)) == Counter(atomic)
    found = finishes()
    assert {status for _, status in found} == {"successful"}
    assert set(found.values()) == {1}
    assert len(found) == total
    assert {worker.stop() for worker in disorder.workers} == {0}
    assert fetch_rows("SELECT FROM pgjobs_job WHERE attempts < 1 OR claim < attempts") == []
    assert fetch_rows("SELECT FROM pgjobs_job WHERE lost_count > 0"), "nothing was ever lost"
