"""A worker that was told of a job claims it before it asks for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from django_pgjobs.queries import claims
from django_pgjobs.worker.upkeep import look
from tests import tasks
from tests.factories import get_job, get_worker
from tests.helpers import wait_until
from tests.worker.support import NEVER, ThreadedWorker

Start = Callable[..., ThreadedWorker]

BUSY = """
SELECT FROM pg_stat_activity
WHERE application_name LIKE 'pgjobs%' AND datname = current_database()
    AND (state <> 'idle' OR state_change > clock_timestamp() - interval '500 milliseconds')
"""


def is_everybody_at_rest() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(BUSY)
        return cursor.fetchone() is None


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_after_a_notification_the_claim_comes_before_the_look(
    start_thread: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job that was told of is claimed at once; where others are is asked after it."""
    worker = start_thread(poll_interval=NEVER)
    wait_until(lambda: get_worker(worker.id).listening)
    wait_until(is_everybody_at_rest)
    monkeypatch.setattr(look, "FIRST_GAP_SECONDS", NEVER)
    sent: list[str] = []
    send_claim, send_listing = claims.send_claim, claims.send_lane_listing

    def claim(*args: Any, **given: Any) -> None:
        sent.append("claim")
        send_claim(*args, **given)

    def list_lanes(*args: Any, **given: Any) -> None:
        sent.append("look")
        send_listing(*args, **given)

    monkeypatch.setattr(claims, "send_claim", claim)
    monkeypatch.setattr(claims, "send_lane_listing", list_lanes)
    for _ in range(2):
        sent.clear()
        job = tasks.add.enqueue(1, 2)
        wait_until(lambda job=job: get_job(job.id).status == "successful")
        wait_until(lambda: "look" in sent)
        assert sent[0] == "claim"
        wait_until(is_everybody_at_rest)
