"""An idle worker beside full keys: it does not walk past them while nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.queries import claims
from tests.factories import get_job, make_job, make_running_job, make_worker
from tests.helpers import wait_until
from tests.worker.support import NEVER, ThreadedWorker
from tests.worker.test_settled import COUNTING_VERSION

Start = Callable[..., ThreadedWorker]

# Sessions tell the server of what they wrote within ten seconds.
SECONDS = 25


class Looks:
    """Counts the scans of all workers since one of them walked past keys."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.walks = self.scans_since = 0
        send_claim, send_count = claims.send_keyed_claim, claims.send_change_count

        def send_keyed_claim(cursor: Any, floors: Any, segments: Any, **others: Any) -> None:
            if segments:
                self.walks += 1
                self.scans_since = 0
            send_claim(cursor, floors, segments, **others)

        def send_change_count(cursor: Any) -> None:
            self.scans_since += 1
            send_count(cursor)

        monkeypatch.setattr(claims, "send_keyed_claim", send_keyed_claim)
        monkeypatch.setattr(claims, "send_change_count", send_change_count)

    def wait_until_settled(self) -> None:
        """Wait until a worker has looked again and again without walking."""
        wait_until(lambda: self.scans_since >= 3, timeout=SECONDS)


@pytest.fixture
def looks(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Looks:
    """What workers look for."""
    if connection.pg_version < COUNTING_VERSION:
        pytest.skip("the server keeps its counts in a file: each poll walks")
    return Looks(monkeypatch)


def make_full_keys(count: int) -> tuple[list[int], list[int]]:
    """Let one job of each key run and another one wait; return both."""
    elsewhere = make_worker(lease_seconds=600)
    running = [
        make_running_job(elsewhere, concurrency_key=f"shop:{number}").id for number in range(count)
    ]
    waiting = [make_job(concurrency_key=f"shop:{number}") for number in range(count)]
    return running, waiting


def execute(query: str, *parameters: Any) -> None:
    """Write to the tables as a stranger does, who tells nobody."""
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)


def has_run(job_id: int) -> bool:
    return bool(get_job(job_id).status == "successful")


def test_full_keys_are_walked_past_once_while_nothing_changes(
    start_thread: Start, looks: Looks
) -> None:
    """DESIGN 9.2, PITFALLS G13: no work per idle poll."""
    _, waiting = make_full_keys(30)
    start_thread(poll_interval=0.05)
    looks.wait_until_settled()
    assert looks.walks
    assert not any(has_run(job) for job in waiting)


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM pgjobs_job WHERE id = %s",
        "INSERT INTO pgjobs_concurrency_limit (pattern, max_running) VALUES ('shop:0', 2) -- %s",
    ],
    ids=["a running job that vanishes", "a limit"],
)
def test_a_write_that_nobody_announces_is_noticed(
    start_thread: Start, looks: Looks, query: str
) -> None:
    running, waiting = make_full_keys(3)
    start_thread(poll_interval=0.05)
    looks.wait_until_settled()
    execute(query, running[0])
    wait_until(lambda: has_run(waiting[0]), timeout=SECONDS)
    assert not has_run(waiting[1])


def test_the_first_rate_limit_lets_jobs_start_that_name_it(
    start_thread: Start, looks: Looks
) -> None:
    """Where there is none, workers claim by a statement that knows of none."""
    job = make_job(rate_limit_keys="api")
    start_thread(poll_interval=0.05)
    looks.wait_until_settled()
    execute("INSERT INTO pgjobs_rate_limit (name, count, period) VALUES ('api', 100, 1)")
    wait_until(lambda: has_run(job), timeout=SECONDS)


def test_a_notification_unsettles_the_keys(start_thread: Start, looks: Looks) -> None:
    make_full_keys(3)
    start_thread(poll_interval=NEVER)
    wait_until(lambda: looks.scans_since > 1)
    job = make_job(concurrency_key="another")
    wait_until(lambda: has_run(job))


def test_keys_are_walked_past_at_each_poll_without_notifications(
    start_thread: Start, looks: Looks
) -> None:
    """Polling is the truth then, and the counts of writes come late."""
    make_full_keys(3)
    start_thread(poll_interval=0.05, listen=False)
    wait_until(lambda: looks.walks >= 3, timeout=SECONDS)
    assert looks.scans_since == 0
