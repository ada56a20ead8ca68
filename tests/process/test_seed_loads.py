"""The loads that the five seeds tell of: a share of a day's jobs, in the same share of a day.

What is asserted of time is that share, which is generous: the rest is that every job ran, and ran
once, and that nobody else was hurt.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import psycopg
import pytest

from django_pgjobs.models import RateLimit, Worker
from tests import tasks as common
from tests.factories import count_jobs
from tests.helpers import TEST_SECONDS, WorkerProcess, connect, wait_until
from tests.models import Effect
from tests.process import rate_tasks, tasks
from tests.process.history import find_crowds, parse
from tests.process.support import Journal, fetch_rows, wait_for_count
from tests.windows import largest_window

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

DAY = 86_400.0
# Jobs in the hours of a day, in thousandths: few at night, most in the late morning.
HOURS = (8, 5, 4, 4, 6, 12, 24, 40, 62, 80, 86, 82, 70, 72, 74, 72, 66, 58, 48, 40, 34, 26, 17, 10)
# A body of a webhook.
PAYLOAD = {"event": "deal.updated", "fields": {f"field_{number}": "x" * 20 for number in range(30)}}


@contextmanager
def share_of_a_day(share: float) -> Iterator[None]:
    """Fail if the block takes more than this share of a day."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took < DAY * share, f"{took:.0f} s for the jobs of {DAY * share:.0f} s"


def attempts_per_job() -> dict[tuple[str, int], int]:
    """Return (status, attempts) -> how many jobs."""
    rows = fetch_rows("SELECT status, attempts, count(*) FROM pgjobs_job GROUP BY 1, 2")
    return {(status, attempts): jobs for status, attempts, jobs in rows}


def test_a_hundredth_of_a_day_of_700_000_jobs(start: Start, journal: Journal) -> None:
    """S1.1: webhooks, async calls and jobs that fail once, as they come in the hours of a day."""
    start("--processes", "2")
    share = 1 / 100
    with share_of_a_day(share):
        for hour, thousandths in enumerate(HOURS):
            jobs = round(700_000 * share * thousandths / 1_000)
            failing = jobs // 100
            common.echo.enqueue_many({"body": PAYLOAD} for _ in range(jobs - 2 * failing))
            common.add_async.enqueue_many((number, hour) for number in range(failing))
            tasks.hold_at_second_try.enqueue_many(
                (journal.folder, f"{hour}:{number}", 0) for number in range(failing)
            )
        enqueued = count_jobs()
        wait_for_count(enqueued, status="successful", timeout=TEST_SECONDS / 2)
    assert enqueued == pytest.approx(7_000, abs=24)
    twice = sum(line.startswith("fail ") for line in journal.lines())
    assert attempts_per_job() == {("successful", 1): enqueued - twice, ("successful", 2): twice}
    assert 50 < twice < 100
    assert fetch_rows("SELECT count(*) FROM pgjobs_job_live") == [(0,)]


def test_a_thousandth_of_a_day_of_10_million_jobs_of_one_type(start: Start) -> None:
    """S2.36: more than 100,000 a day, tens of millions expected; S1.1."""
    share = 1 / 1_000
    worker = start("--processes", "2")
    with share_of_a_day(share):
        common.add.enqueue_many((number, 1) for number in range(10_000))
        wait_for_count(10_000, status="successful", attempts=1, timeout=TEST_SECONDS / 2)
    [(total,)] = fetch_rows("SELECT sum((result #>> '{}')::bigint) FROM pgjobs_job")
    assert total == sum(range(1, 10_001))
    assert worker.stop() == 0


def test_a_thousandth_of_a_day_of_events_of_40_integrations(start: Start, journal: Journal) -> None:
    """S4.1: five million a day, no integration above its limit; and the last is as far as any."""
    share = 1 / 1_000
    limited = tasks.hold.using(concurrency_limit=50)
    start("--processes", "2", "-c", "30")
    with share_of_a_day(share):
        for _ in range(5):
            limited.enqueue_many(
                (journal.folder, f"integration-{number % 40}", 0.005) for number in range(1_000)
            )
        wait_for_count(5_000, status="successful", attempts=1, timeout=TEST_SECONDS / 2)
    events = parse(journal.lines())
    begun = Counter(event.key for event in events if event.kind == "begin")
    assert begun == {f"integration-{number}": 125 for number in range(40)}
    assert find_crowds(events, 50) == []


def test_two_thousand_transactions_a_second_hurt_nobody(
    start: Start, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """S3.8: each job is a transaction of a client; others read and write meanwhile, unhindered."""
    worker = start("--processes", "2", "-c", "4")
    jobs, clients = 2_000 * 3, 4
    insert = "INSERT INTO pgjobs_job (task_path, args) VALUES ('tests.tasks.add', '[1, 2]')"
    failures: list[BaseException] = []

    def send() -> None:
        try:
            with connect() as client:
                for _ in range(jobs // clients):
                    client.execute(insert)
        except BaseException as error:
            failures.append(error)

    bystander = open_connection()
    bystander.execute("SET lock_timeout = '1s'")
    table = Effect._meta.db_table
    threads = [threading.Thread(target=send) for _ in range(clients)]
    for thread in threads:
        thread.start()
    written = 0
    while any(thread.is_alive() for thread in threads):
        bystander.execute(f"INSERT INTO {table} (key, made_at) VALUES ('bystander', now())")
        bystander.execute("SELECT status, count(*) FROM pgjobs_job_live GROUP BY 1")
        written += 1
    for thread in threads:
        thread.join()
    assert failures == []
    wait_for_count(jobs, status="successful", attempts=1)
    assert Effect.objects.filter(key="bystander").count() == written > 0
    assert worker.stop() == 0


def test_the_tables_are_watched_and_tuned_while_a_worker_runs(
    start: Start, open_connection: Callable[..., psycopg.Connection]
) -> None:
    """S3.9: storage, indexes, statistics and vacuum are the owner's, the knobs are flags."""
    worker = start(
        "-c", "3", "--poll-interval", "0.7", "--lease-seconds", "30",
        pgjobs={"ASYNC_CONCURRENCY": 7, "RETENTION_SECONDS": 86_400},
    )  # fmt: skip
    assert "(1 x 3 threads)" in worker.output() and "0.7 s" in worker.output()
    owner = open_connection()
    for statement in (
        "ALTER TABLE pgjobs_job_live SET (fillfactor = 70, autovacuum_vacuum_threshold = 100)",
        "ALTER TABLE pgjobs_job_finished ALTER COLUMN task_path SET STATISTICS 500",
        "CREATE INDEX CONCURRENTLY tuned ON pgjobs_job_finished USING gin (tags)",
        "REINDEX INDEX CONCURRENTLY pgjobs_job_ready",
        "VACUUM (ANALYZE) pgjobs_job_live",
        "ANALYZE pgjobs_job",
    ):
        before = count_jobs()
        common.add.enqueue_many((1, number) for number in range(20))
        owner.execute(statement)
        wait_for_count(before + 20, status="successful", attempts=1)
    owner.execute("ALTER TABLE pgjobs_job_live RESET (fillfactor, autovacuum_vacuum_threshold)")
    owner.execute("ALTER TABLE pgjobs_job_finished ALTER COLUMN task_path SET STATISTICS -1")
    owner.execute("DROP INDEX tuned")
    sessions = fetch_rows(
        "SELECT application_name FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'pgjobs %%'"
    )
    assert {name for (name,) in sessions} >= {"pgjobs pump", "pgjobs upkeep", "pgjobs lease"}
    assert worker.stop() == 0


def test_two_containers_share_jobs_and_limits_and_one_ends_without_loss(
    start: Start, journal: Journal
) -> None:
    """S4.12: two supervisors of two processes each; the first is stopped amid the work."""
    RateLimit.objects.create(name="api", count=40, period=0.5, burst=4)
    modules = (rate_tasks.__name__,)
    containers = [
        start("--processes", "2", "-c", "2", "--name", name, modules=modules)
        for name in ("pod-1", "pod-2")
    ]
    wait_until(lambda: Worker.objects.count() == 4)
    tasks.hold.using(concurrency_limit=3).enqueue_many(
        (journal.folder, f"key-{number % 4}", 0.02) for number in range(200)
    )
    rate_tasks.take_for.enqueue_many((journal.folder, "api:1", 0.3) for _ in range(20))
    wait_until(lambda: len(parse(journal.lines())) > 100)
    assert containers[0].stop() == 0
    wait_for_count(220, status="successful", attempts=1)
    events = parse(journal.lines())
    begun = Counter(event.number for event in events if event.kind == "begin")
    assert len(begun) == 200 and set(begun.values()) == {1}
    assert find_crowds(events, 3) == []
    turns = [line.split()[1] for line in journal.lines() if line.startswith("grant ")]
    taken = [(datetime.fromisoformat(turn), 1) for turn in turns]
    assert 0 < largest_window(taken, timedelta(seconds=0.5)) <= 40
    pods = fetch_rows("SELECT DISTINCT left(worker_ids[1], 5) FROM pgjobs_job ORDER BY 1")
    assert pods == [("pod-1",), ("pod-2",)]
