"""Pauses under load: real workers, and a trigger that writes down every claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from django.db import connection

from django_pgjobs import pause, resume
from tests import tasks
from tests.factories import count_jobs, make_jobs
from tests.helpers import WorkerProcess, wait_until
from tests.process.support import NEVER, fetch_rows

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]

WRITE_DOWN = """
CREATE TABLE claim_log (
    job_id bigint, queue_name text, begun_at timestamptz, taken_at timestamptz, key text
);
CREATE FUNCTION log_claims() RETURNS trigger LANGUAGE plpgsql
SET search_path = public AS $body$
BEGIN
    INSERT INTO claim_log VALUES (
        NEW.id, NEW.queue_name, transaction_timestamp(), clock_timestamp(), NEW.concurrency_key
    );
    RETURN NULL;
END
$body$;
CREATE TRIGGER log_claims AFTER UPDATE ON pgjobs_job_live FOR EACH ROW
    WHEN (OLD.status = 'ready' AND NEW.status = 'running') EXECUTE FUNCTION log_claims();
"""
FORGET = """
DROP TRIGGER log_claims ON pgjobs_job_live;
DROP FUNCTION log_claims();
DROP TABLE claim_log;
"""


@pytest.fixture
def _log_of_claims(transactional_db: None) -> Iterator[None]:
    """Write every claim to the table claim_log.

    With the begin of its transaction, which lists, and the time when the job was taken: one that
    begins in a pause may wait, and list after its end.
    """
    with connection.cursor() as cursor:
        cursor.execute(WRITE_DOWN)
    yield
    with connection.cursor() as cursor:
        cursor.execute(FORGET)


def clock() -> datetime:
    """Return the time on the server, after everything that was committed before."""
    [(now,)] = fetch_rows("SELECT clock_timestamp()")
    return now


def claims(**columns: Any) -> int:
    """Return how many claims there were with these values."""
    [(name, value)] = columns.items()
    return int(fetch_rows(f"SELECT count(*) FROM claim_log WHERE {name} = %s", value)[0][0])


TARGETS = {
    "queue": ({"queue": "mail"}, "queue_name = 'mail'"),
    "task": ({"task": tasks.add}, "queue_name = 'mail'"),
    "key": ({"key": "shop:*"}, "queue_name = 'mail' AND key IS NOT NULL"),
}


@pytest.mark.usefixtures("_log_of_claims")
@pytest.mark.parametrize("kind", TARGETS)
def test_no_claim_that_begins_after_the_commit_of_a_pause_takes_what_is_paused(
    start: Start, kind: str
) -> None:
    """S1.15: by the server's clock, with two busy workers, several times over."""
    target, paused = TARGETS[kind]
    worker = start("--processes", "2", "-c", "4", "--poll-interval", NEVER, wait=False)
    make_jobs(3_000, queue_name="mail")
    for shop in range(30):
        make_jobs(40, queue_name="mail", concurrency_key=f"shop:{shop}", concurrency_limit=3)
    make_jobs(3_000, "tests.tasks.echo", queue_name="other", args=[])
    spans = []
    for goal in (500, 1_000, 1_500, 2_000):
        wait_until(
            lambda goal=goal: claims(queue_name="mail") >= goal,
            timeout=60,
            message=worker.output,
        )
        pause(**target)
        begin = clock()
        before = claims(queue_name="other")
        wait_until(lambda n=before: claims(queue_name="other") >= min(n + 200, 3_000), timeout=60)
        spans.append((begin, clock()))
        resume(**target)
    wait_until(lambda: count_jobs(status="successful") == 7_200, timeout=90, message=worker.output)
    for begin, end in spans:
        found = fetch_rows(
            f"SELECT count(*) FROM claim_log WHERE {paused} AND begun_at > %s AND taken_at < %s",
            begin,
            end,
        )
        assert found == [(0,)]


def test_jobs_that_arrive_in_a_paused_queue_wait_for_its_resume(start: Start) -> None:
    """Those of other queues run."""
    start("-c", "2", "--poll-interval", NEVER)
    pause(queue="mail", reason="PDF bug")
    waiting = make_jobs(50, queue_name="mail")
    make_jobs(50)
    wait_until(lambda: count_jobs(status="successful") == 50)
    assert count_jobs(queue_name="mail", status="ready", attempts=0) == len(waiting)
    resume(queue="mail")
    wait_until(lambda: count_jobs(status="successful") == 100)


def test_a_pause_that_is_not_committed_stops_nobody(
    start: Start, open_connection: Callable[..., psycopg.Connection]
) -> None:
    start("-c", "2", "--poll-interval", NEVER)
    other = open_connection(autocommit=False)
    other.execute("INSERT INTO pgjobs_pause (kind, name) VALUES ('queue', 'default')")
    make_jobs(50)
    wait_until(lambda: count_jobs(status="successful") == 50)
    other.commit()
    make_jobs(5)
    make_jobs(5, queue_name="other")
    wait_until(lambda: count_jobs(status="successful") == 55)
    assert count_jobs(status="ready", queue_name="default", attempts=0) == 5
