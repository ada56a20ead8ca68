"""Order, limits, turns and rates over several real workers, shown by what the jobs wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

import psycopg
import pytest

from django_pgjobs.control.pauses import pause, resume
from django_pgjobs.models import ConcurrencyLimit, QueueSettings, RateLimit
from tests.factories import count_jobs
from tests.helpers import WorkerProcess, wait_until
from tests.process import tasks
from tests.process.history import (
    Event,
    find_crowds,
    find_disorder,
    find_lost,
    find_starvation,
    line_of,
    most_at_once,
    parse,
)
from tests.process.support import Journal, fetch_rows, wait_for_count
from tests.windows import largest_window

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
]

Start = Callable[..., WorkerProcess]


class Claim(NamedTuple):
    """One claim of a job."""

    job_id: int
    key: str
    rate_keys: str
    claimed_at: datetime


Claims = Callable[[], list[Claim]]

# A job that is finished says when it began to run; that it was claimed is noted as it happens.
NOTE_CLAIMS = """
CREATE TABLE tests_claim (
    number bigserial, job_id bigint, key text, rate_keys text, claimed_at timestamptz
);
CREATE FUNCTION tests_note_claim() RETURNS trigger LANGUAGE plpgsql
SET search_path = public AS $$
BEGIN
    INSERT INTO tests_claim (job_id, key, rate_keys, claimed_at)
    VALUES (NEW.id, NEW.concurrency_key, NEW.rate_limit_keys, NEW.last_attempted_at);
    RETURN NULL;
END $$;
CREATE TRIGGER tests_note_claim AFTER UPDATE ON pgjobs_job_live
    FOR EACH ROW WHEN (OLD.status = 'ready' AND NEW.status = 'running')
    EXECUTE FUNCTION tests_note_claim();
"""
FORGET_CLAIMS = """
DROP TRIGGER tests_note_claim ON pgjobs_job_live;
DROP FUNCTION tests_note_claim;
DROP TABLE tests_claim;
"""


@pytest.fixture
def claims(open_connection: Callable[..., psycopg.Connection]) -> Iterator[Claims]:
    """Return what the database noted of each claim, in order: `claims()`."""
    open_connection().execute(NOTE_CLAIMS)
    query = "SELECT job_id, key, rate_keys, claimed_at FROM tests_claim ORDER BY number"
    yield lambda: [Claim(*row) for row in fetch_rows(query)]
    open_connection().execute(FORGET_CLAIMS)


@pytest.fixture
def start_all(start: Start) -> Callable[..., list[WorkerProcess]]:
    """Start workers: `start_all(count, *flags)`. None begins before all are ready.

    However long that takes, the jobs there are do not run in the first one alone.
    """

    def start_many(count: int, *flags: str) -> list[WorkerProcess]:
        queues = [queue for [queue] in fetch_rows("SELECT DISTINCT queue_name FROM pgjobs_job")]
        for queue in queues:
            pause(queue=queue)
        workers = [start(*flags, wait=False) for _ in range(count)]
        for worker in workers:
            worker.wait_until_ready()
        for queue in queues:
            resume(queue=queue)
        return workers

    return start_many


def enqueue(journal: Journal, key: str, count: int, seconds: float, task=tasks.hold) -> None:
    """Enqueue jobs of a key and note that they wait."""
    for job in task.enqueue_many((journal.folder, key, seconds) for _ in range(count)):
        tasks.write(journal.folder, line_of("wait", key, int(job)))


def events_of(journal: Journal) -> list[Event]:
    return parse(journal.lines())


def count_ends(journal: Journal) -> int:
    return sum(event.kind == "end" for event in events_of(journal))


def is_paused_in_a_job(worker: WorkerProcess, journal: Journal) -> bool:
    """Pause the worker; let it go on again if no job is running in it."""
    worker.pause()
    mine = Counter(event.kind for event in events_of(journal) if event.process == worker.pid)
    if mine["begin"] > mine["end"] + mine["fail"]:
        return True
    worker.resume()
    return False


def test_one_job_of_a_key_runs_at_a_time_in_order_though_a_worker_is_killed(
    start: Start, start_all: Callable[..., list[WorkerProcess]], journal: Journal
) -> None:
    """S1.9, S1.11, S1.13, S2.23: over two task types, two queues and a restart."""
    keys = [f"company:{number}" for number in range(20)]
    kinds = [tasks.hold, tasks.hold_by_mail.using(priority=5)]
    for number in range(20):
        for key in keys:
            task = tasks.hold_at_second_try if number == 7 else kinds[number % 2]
            enqueue(journal, key, 1, 0.005 if number < 10 else 0.05, task)
    workers = start_all(3, "-c", "4", "--lease-seconds", "1")
    wait_until(lambda: count_ends(journal) > 100)
    # Whichever has a job: on a busy machine one of them may get no more.
    victim = wait_until(
        lambda: next((each for each in workers if is_paused_in_a_job(each, journal)), None)
    )
    victim.kill()
    tasks.write(journal.folder, line_of("lost", "-", 0, victim.pid))
    start("-c", "4", "--lease-seconds", "1")
    wait_for_count(400, status="successful", timeout=30)
    events = events_of(journal)
    assert find_crowds(events) == []
    assert find_disorder(events) == []
    assert find_lost(events) == []
    assert fetch_rows("SELECT count(*) FROM pgjobs_job WHERE lost_count > 0") != [(0,)]


def test_no_more_jobs_of_a_key_run_than_its_limit_over_all_workers(
    start_all: Callable[..., list[WorkerProcess]], journal: Journal
) -> None:
    """S4.17, S4.21."""
    for key in ("shop:1", "shop:2"):
        # The first ones last long enough to meet, however slow the machine.
        enqueue(journal, key, 6, 0.5, tasks.hold.using(concurrency_limit=3))
        enqueue(journal, key, 54, 0.01, tasks.hold.using(concurrency_limit=3))
    start_all(3, "-c", "4")
    wait_for_count(120, status="successful")
    events = events_of(journal)
    assert find_crowds(events, 3) == []
    assert find_lost(events) == []
    assert [most_at_once(events, key) for key in ("shop:1", "shop:2")] == [3, 3]


def test_a_limit_that_is_raised_and_lowered_holds_from_the_next_claim_on(
    start_all: Callable[..., list[WorkerProcess]], journal: Journal
) -> None:
    """S1.15: on every worker, without a restart."""

    def tell(limit: int) -> None:
        tasks.write(journal.folder, line_of("limit", "shop:1", limit))

    def change(limit: int) -> None:
        ConcurrencyLimit.objects.update_or_create(pattern="shop:*", defaults={"max_running": limit})

    def have_others_joined() -> bool:
        # On a busy machine one worker may run many before another one looks.
        if count_jobs(status="ready") < 50:
            enqueue(journal, "shop:1", 100, 0.05)
        return most_at_once(events_of(journal), "shop:1") > 4

    enqueue(journal, "shop:1", 200, 0.05)
    change(2)
    tell(2)
    # One worker runs up to four; that idle ones may join it they find by polling.
    start_all(3, "-c", "4", "--poll-interval", "0.05")
    wait_until(lambda: count_ends(journal) > 20)
    tell(6)
    change(6)
    wait_until(have_others_joined)
    change(1)
    # What was claimed before goes on.
    wait_until(lambda: count_jobs(status="running") <= 1)
    tell(1)
    ended = count_ends(journal)
    enqueue(journal, "shop:1", 20, 0.05)
    wait_until(lambda: count_ends(journal) > ended + 10)
    tell(6)
    change(6)
    wait_for_count(count_jobs(), status="successful")
    events = events_of(journal)
    assert find_crowds(events) == []
    assert find_lost(events) == []


def test_a_queue_has_its_limit_over_all_workers_and_others_run_beside_it(
    start_all: Callable[..., list[WorkerProcess]], journal: Journal
) -> None:
    """S1.15."""
    QueueSettings.objects.create(queue_name="narrow", max_running=3)
    enqueue(journal, "narrow", 60, 0.01, tasks.hold_narrow)
    enqueue(journal, "narrow", 30, 0.01, tasks.hold.using(queue_name="narrow", concurrency_limit=9))
    enqueue(journal, "wide", 60, 0.01, tasks.hold_narrow.using(queue_name="wide"))
    start_all(3, "-c", "4")
    wait_for_count(150, status="successful")
    events = events_of(journal)
    assert [e for e in find_crowds(events, 3) if "in narrow" in e] == []
    assert find_lost(events) == []
    assert most_at_once(events, "narrow") == 3
    assert most_at_once(events, "wide") > 3


def test_a_worker_gives_a_queue_no_more_slots_than_it_says(
    start_all: Callable[..., list[WorkerProcess]], journal: Journal
) -> None:
    """S1.15: `--queues narrow:1,*`; two workers have one each."""
    enqueue(journal, "narrow", 40, 0.01, tasks.hold_narrow)
    enqueue(journal, "wide", 60, 0.01, tasks.hold_narrow.using(queue_name="wide"))
    start_all(2, "-c", "4", "--queues", "narrow:1,*")
    wait_for_count(100, status="successful")
    events = events_of(journal)
    narrow = [event for event in events if event.key == "narrow"]
    assert find_crowds(narrow, group=lambda event: str(event.process)) == [], "of one worker"
    assert most_at_once(events, "narrow") == 2
    assert most_at_once(events, "wide") > 2
    assert find_lost(events) == []


def test_no_more_jobs_are_claimed_in_any_window_than_their_rate_limit_allows(
    start_all: Callable[..., list[WorkerProcess]], journal: Journal, claims: Claims
) -> None:
    """S4.25: counted in the database, over all workers, and none is thrown back."""
    RateLimit.objects.create(name="api", count=20, period=0.5)
    RateLimit.objects.create(name="api:2", count=10, period=0.5, burst=5)
    for key in ("1", "2"):
        enqueue(journal, key, 25, 0.0, tasks.hold_rate)
    start_all(3, "-c", "4")
    wait_for_count(50, status="successful")
    for key, most in (("api:1", 20), ("api:2", 10)):
        taken = [(claim.claimed_at, 1) for claim in claims() if claim.rate_keys == key]
        assert len(taken) == 25, "each job is claimed once"
        assert largest_window(taken, timedelta(seconds=0.5)) <= most
    assert find_lost(events_of(journal)) == []


def test_a_key_with_many_jobs_does_not_keep_those_with_few_waiting(
    start_all: Callable[..., list[WorkerProcess]], journal: Journal, claims: Claims
) -> None:
    """S4.17, S5.14: the large one was there first, and has all 500 turns if nobody is fair.

    Fewer than half of them, because what a worker that is kept waiting by the machine has locked
    is no turn for the others.
    """
    limited = tasks.hold.using(concurrency_limit=50)
    enqueue(journal, "a-large-one", 500, 0.01, limited)
    for number in range(10):
        enqueue(journal, f"small:{number}", 5, 0.01, limited)
    start_all(3, "-c", "4")
    wait_for_count(550, status="successful")
    ends = [event.key for event in events_of(journal) if event.kind == "end"]
    last_small = max(place for place, key in enumerate(ends) if key != "a-large-one")
    assert ends[:last_small].count("a-large-one") < 250
    waits = [event for event in events_of(journal) if event.kind == "wait"]
    turns = [Event("begin", claim.key, claim.job_id) for claim in claims()]
    assert find_starvation(waits + turns, turns=250, limit=50) == []
