"""Callbacks of real workers, which know the task without being told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_pgjobs import workflow
from django_pgjobs.http.calling import call_back, call_back_after
from django_pgjobs.http.signatures import verify
from tests.helpers import WorkerProcess, wait_until
from tests.http.receivers import SECRET, receiving
from tests.tasks import add, fail_once

pytestmark = pytest.mark.process


def test_a_worker_calls_back(start_worker: Callable[..., WorkerProcess], settings: Any) -> None:
    """S2.1: of the end of a workflow, of a job, and of a failure."""
    with receiving() as receiver:
        given = {
            "CALLBACK_HOSTS": [receiver.url],
            "CALLBACK_SECRET": SECRET,
            "CALLBACK_ALLOW_PRIVATE": True,
        }
        settings.PGJOBS = given
        start_worker(settings={"PGJOBS": given})
        with workflow("sums") as flow:
            flow.add(add.s(1, 2))
            flow.on_complete(call_back(f"{receiver.url}/flow"))
        call_back_after(add.enqueue(3, 4), f"{receiver.url}/job")
        fail_once.using(on_failure=call_back(f"{receiver.url}/failure")).enqueue()
        wait_until(lambda: len(receiver.got) == 3)
    told = {path: verify(body, dict(headers), SECRET) for path, headers, body in receiver.got}
    assert told["/flow"]["batch"]["state"] == "successful"
    assert told["/job"]["job"]["status"] == "successful"
    assert told["/failure"]["job"]["status"] == "failed"
