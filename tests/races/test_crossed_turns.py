"""Two workers whose statements cross: a row moves between the snapshot of one and its lock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.errors import SerializationFailure

from django_pgjobs.queries.connection import OwnConnection
from tests import tasks
from tests.factories import get_job
from tests.helpers import wait_until
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_turn_that_another_worker_crossed_is_repeated_and_is_no_fault(
    start_thread: Callable[..., ThreadedWorker],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PITFALLS 64: expected, quickly retried, and nothing of the turn is lost."""
    round_trip = OwnConnection.round_trip
    crossed: list[int] = []

    def cross_every_third(self: OwnConnection, sends: Any) -> Any:
        if self.role == "pump":
            crossed.append(len(sends))
            if len(crossed) % 3 == 0:
                raise SerializationFailure("tuple to be locked was already moved")
        return round_trip(self, sends)

    monkeypatch.setattr(OwnConnection, "round_trip", cross_every_third)
    with caplog.at_level(logging.WARNING, "django_pgjobs"):
        worker = start_thread()
        results = [tasks.add.enqueue(number, 1) for number in range(20)]
        wait_until(lambda: {get_job(result.id).status for result in results} == {"successful"})
    assert len(crossed) >= 3
    assert [get_job(result.id).result for result in results] == [n + 1 for n in range(20)]
    assert all(get_job(result.id).attempts == 1 for result in results)
    assert not caplog.records
    assert worker.is_running
