"""Transactions and events of Sentry, by its SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sentry_sdk

from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from django_pgjobs.tracing.headers import KEY
from tests import tasks
from tests.helpers import wait_until
from tests.tracing.conftest import Kept, Telemetry
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[[], ThreadedWorker]


def trace_of(item: dict[str, Any]) -> str:
    return str(item["contexts"]["trace"]["trace_id"])


@pytest.mark.parametrize("task", [tasks.add, tasks.add_async], ids=["thread", "event loop"])
def test_an_attempt_is_a_transaction_in_the_trace_of_its_enqueue(
    sentry: Kept, worker: Start, task: Any
) -> None:
    worker()
    with sentry_sdk.start_transaction(op="http.server", name="/order"):
        job = task.enqueue(1, 2)
    [process] = wait_until(lambda: sentry.transactions("queue.process"))
    [request] = wait_until(lambda: sentry.transactions("http.server"))
    [publish] = request["spans"]
    assert publish["op"] == "queue.publish"
    assert publish["data"]["messaging.destination.name"] == "default"
    assert publish["data"]["messaging.message.id"] == job.id
    assert process["transaction"] == task.module_path
    assert trace_of(process) == trace_of(request)
    told = process["contexts"]["trace"]
    assert told["parent_span_id"] == publish["span_id"]
    assert told["status"] == "ok"
    data = told["data"]
    assert data["messaging.message.id"] == job.id
    assert data["messaging.destination.name"] == "default"
    assert data["messaging.message.retry.count"] == 0
    assert data["messaging.message.receive.latency"] >= 0
    assert sentry.errors() == []


@pytest.mark.slow
@pytest.mark.parametrize("task", [tasks.fail, tasks.fail_async], ids=["thread", "event loop"])
def test_a_job_that_fails_for_good_is_one_event_in_its_trace(
    sentry: Kept, worker: Start, task: Any
) -> None:
    worker()
    with sentry_sdk.start_transaction(op="http.server", name="/order"):
        task.enqueue("on purpose")
    [event] = wait_until(sentry.errors)
    attempts = wait_until(
        lambda: found if len(found := sentry.transactions("queue.process")) == 3 else None
    )
    [request] = sentry.transactions("http.server")
    assert [trace_of(item) for item in (event, *attempts)] == [trace_of(request)] * 4
    assert event["exception"]["values"][-1]["type"] == "Mishap"
    assert event["transaction"] == task.module_path
    assert event["tags"]["task"] == task.module_path
    assert event["tags"]["queue"] == "default"
    counts = [each["contexts"]["trace"]["data"]["messaging.message.retry.count"]
              for each in attempts]  # fmt: skip
    assert counts == [0, 1, 2]
    assert {each["contexts"]["trace"]["status"] for each in attempts} == {"internal_error"}
    assert len(sentry.errors()) == 1


def test_without_a_transaction_the_trace_goes_along_all_the_same(sentry: Kept) -> None:
    tasks.add.enqueue(1, 2)
    [job] = Job.objects.all()
    assert job.metadata[KEY]["sentry-trace"]
    run_jobs()
    [process] = sentry.transactions("queue.process")
    assert trace_of(process) == job.metadata[KEY]["sentry-trace"].partition("-")[0]
    # The scope is that of the attempt only.
    assert sentry_sdk.get_current_span() is None


def test_both_tracers_go_together(sentry: Kept, telemetry: Telemetry) -> None:
    tasks.add.enqueue(1, 2)
    [job] = Job.objects.all()
    assert job.metadata[KEY].keys() >= {"traceparent", "sentry-trace"}
    run_jobs()
    [process] = telemetry.spans("process ")
    assert len(process.links) == 1
    assert len(sentry.transactions("queue.process")) == 1


def test_an_event_bears_no_breadcrumbs_of_what_ran_before(sentry: Kept, worker: Start) -> None:
    sentry_sdk.add_breadcrumb(message="of what ran before")
    worker()
    tasks.fail_once.enqueue()
    [event] = wait_until(sentry.errors)
    found = event.get("breadcrumbs", {}).get("values", [])
    assert "of what ran before" not in [crumb.get("message") for crumb in found]
