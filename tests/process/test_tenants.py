"""Databases that a project names while jobs run: their sessions are kept as all others are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers import WorkerProcess, end_session
from tests.process import tenants
from tests.process.support import wait_for_status

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]

Start = Callable[..., WorkerProcess]


def look(worker: WorkerProcess, *, renames: bool = False) -> list[Any]:
    """Let a job look at the session of the tenant."""
    job = tenants.look.enqueue(renames=renames)
    return list(wait_for_status(job, "successful", worker=worker).result)


def test_what_a_job_leaves_there_does_not_reach_the_next_one(start: Start) -> None:
    """Also in a connection that took the place of another one."""
    worker = start("-c", "1", modules=("tests.process.tenants",))
    for renames in (True, False):
        dirty = tenants.leave_transaction_open.enqueue()
        wait_for_status(dirty, "successful", worker=worker)
        is_autocommit, name, _ = look(worker, renames=renames)
        assert (is_autocommit, name) == (True, "")


def test_a_session_that_the_server_has_ended_is_replaced(start: Start) -> None:
    worker = start("-c", "1", modules=("tests.process.tenants",))
    [*_, pid] = look(worker)
    end_session(pid)
    [*_, other] = look(worker)
    assert other != pid
