"""A worker stops while a filling waits for a unique key."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import psycopg
import pytest
from django.db import connection

from tests.factories import get_job
from tests.helpers import WorkerProcess, wait_until

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]
INSERT = (
    "INSERT INTO pgjobs_job (task_path, kwargs, queue_name, unique_key, is_declared)"
    " VALUES ('tests.worker.declared.unique', '{\"month\": \"May\"}', 'default', %s, %s)"
    " RETURNING id"
)


def test_a_job_that_waits_for_a_key_goes_back_at_a_stop(start: Start) -> None:
    """It has not started: docs/workers.md gives the shutdown timeout to running jobs."""
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as other:
        other.execute(INSERT, ["report:May", True])  # and no commit
        with connection.cursor() as cursor:
            cursor.execute(INSERT, [None, False])
            [job_id] = cursor.fetchone()
        worker = start("-c", "2", modules=("tests.worker.declared",))
        worker.wait_for_output("its outcome waits")
        assert get_job(job_id).status == "running"
        began = time.monotonic()
        worker.send(signal.SIGTERM)
        wait_until(lambda: get_job(job_id).status == "ready", timeout=10)
        assert time.monotonic() - began < 10
        assert worker.wait() == 0
        other.rollback()
