"""Spans and metrics of OpenTelemetry, by its SDK."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from django.core.checks import WARNING
from opentelemetry import baggage, context, trace
from opentelemetry.trace import SpanKind, StatusCode

from django_pgjobs import workflow
from django_pgjobs.checks import check_tracing
from django_pgjobs.models import Job
from django_pgjobs.testing import run_jobs
from django_pgjobs.tracing import conventions as names
from django_pgjobs.tracing import tracers
from django_pgjobs.tracing.headers import KEY, MAX_BYTES, bounded, headers_of_detail
from tests import tasks
from tests.helpers import wait_until
from tests.tracing.conftest import Telemetry
from tests.tracing.tasks import ask_again, say_trace, say_trace_async
from tests.worker.support import ThreadedWorker

pytestmark = pytest.mark.django_db(transaction=True)

Start = Callable[[], ThreadedWorker]


def trace_id_of(span: Any) -> str:
    return trace.format_trace_id(span.context.trace_id)


def test_an_attempt_leads_back_to_its_enqueue(telemetry: Telemetry, worker: Start) -> None:
    worker()
    with trace.get_tracer("project").start_as_current_span("request"):
        job = tasks.add.using(correlation_id="order 7").enqueue(1, 2)
    [process] = wait_until(lambda: telemetry.spans("process "))
    [request], [enqueue] = telemetry.spans("request"), telemetry.spans("enqueue ")
    assert enqueue.name == "enqueue default"
    assert enqueue.kind is SpanKind.PRODUCER
    assert enqueue.parent.span_id == request.context.span_id
    assert dict(enqueue.attributes) == {
        names.MESSAGING_SYSTEM: "pgjobs",
        names.DESTINATION_NAME: "default",
        names.OPERATION_NAME: "enqueue",
        names.OPERATION_TYPE: "send",
        names.TASK: "tests.tasks.add",
        names.MESSAGE_ID: job.id,
    }
    assert process.name == "process tests.tasks.add"
    assert process.kind is SpanKind.CONSUMER
    # A trace of its own: a job may run days later, and again.
    assert process.parent is None
    [link] = process.links
    assert link.context.span_id == enqueue.context.span_id
    assert link.context.trace_id == enqueue.context.trace_id != process.context.trace_id
    assert process.status.status_code is StatusCode.UNSET
    said = dict(process.attributes)
    assert said.pop(names.WAITED) >= 0
    assert said == {
        names.MESSAGING_SYSTEM: "pgjobs",
        names.DESTINATION_NAME: "default",
        names.OPERATION_NAME: "process",
        names.OPERATION_TYPE: "process",
        names.TASK: "tests.tasks.add",
        names.MESSAGE_ID: job.id,
        names.CONVERSATION_ID: "order 7",
        names.ATTEMPT: 1,
        names.MAX_ATTEMPTS: 25,
        names.OUTCOME: "successful",
    }


def test_retries_link_to_the_same_enqueue(telemetry: Telemetry, worker: Start) -> None:
    worker()
    tasks.fail.enqueue("secret words")
    spans = wait_until(lambda: found if len(found := telemetry.spans("process ")) == 3 else None)
    [enqueue] = telemetry.spans("enqueue ")
    assert {span.links[0].context.span_id for span in spans} == {enqueue.context.span_id}
    assert len({span.context.trace_id for span in spans}) == 3
    assert [span.attributes[names.ATTEMPT] for span in spans] == [1, 2, 3]
    assert [span.attributes[names.OUTCOME] for span in spans] == ["retried", "retried", "failed"]
    for span in spans:
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes[names.ERROR_TYPE] == "tests.tasks.Mishap"
        [event] = span.events
        assert event.attributes["exception.type"] == "tests.tasks.Mishap"


@pytest.mark.parametrize("task", [say_trace, say_trace_async], ids=["thread", "event loop"])
def test_the_span_is_the_current_one_in_the_task(
    telemetry: Telemetry, worker: Start, task: Any
) -> None:
    worker()
    token = context.attach(baggage.set_baggage("tenant", "seven"))
    job = task.enqueue()
    context.detach(token)
    wait_until(lambda: Job.objects.get(pk=job.id).status == "successful")
    [process] = wait_until(lambda: telemetry.spans("process "))
    assert Job.objects.get(pk=job.id).result == [trace_id_of(process), "seven"]
    # Nothing of it is left behind.
    other = tasks.add.enqueue(1, 2)
    wait_until(lambda: Job.objects.get(pk=other.id).status == "successful")
    [_first, second] = wait_until(
        lambda: found if len(found := telemetry.spans("process ")) == 2 else None
    )
    assert second.parent is None


def test_what_steers_a_job_is_no_error(telemetry: Telemetry) -> None:
    ask_again.enqueue()
    run_jobs()
    outcomes = [
        (span.attributes[names.OUTCOME], span.status.status_code)
        for span in telemetry.spans("process ")
    ]
    assert outcomes[0] == ("retried", StatusCode.UNSET)
    assert outcomes[-1][1] is StatusCode.ERROR


def test_all_ways_to_enqueue_are_traced(telemetry: Telemetry) -> None:
    tasks.add.enqueue_many([(1, 2), (3, 4), (5, 6)])
    tasks.add.using(unique_key="same").enqueue(1, 2)
    tasks.add.using(unique_key="same").enqueue(1, 2)
    with workflow("traced") as batch:
        batch.add(tasks.add.s(1, 2))
    spans = telemetry.spans("enqueue ")
    counts = [
        span.attributes.get(names.BATCH_COUNT, span.attributes.get(names.MESSAGE_ID) and 1)
        for span in spans
    ]
    assert counts == [3, 1, 0, 1]
    for job in Job.objects.all():
        assert job.metadata[KEY]["traceparent"].startswith("00-")
    assert len({job.metadata[KEY]["traceparent"] for job in Job.objects.all()}) == 3


def test_an_enqueue_that_is_refused_is_an_error(telemetry: Telemetry) -> None:
    with pytest.raises(TypeError):
        tasks.add.enqueue(1, object())
    [span] = telemetry.spans("enqueue ")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes[names.ERROR_TYPE] == "builtins.TypeError"
    assert not trace.get_current_span().get_span_context().is_valid


def test_metadata_stays_what_the_project_gave(telemetry: Telemetry) -> None:
    result = tasks.add.using(metadata={"tenant": 7}).enqueue(1, 2)
    row = Job.objects.get(pk=result.id)
    assert row.metadata.keys() == {"tenant", KEY}
    assert tasks.add.get_result(result.id).task.metadata == {"tenant": 7}


def test_no_job_is_refused_because_it_is_traced(telemetry: Telemetry, settings: Any) -> None:
    settings.PGJOBS = {**settings.PGJOBS, "MAX_PAYLOAD_BYTES": 40}
    result = tasks.add.using(metadata={"tenant": 7}).enqueue(1, 2)
    assert Job.objects.get(pk=result.id).metadata == {"tenant": 7}


def test_headers_without_bounds_are_left_out() -> None:
    long = "x" * MAX_BYTES
    assert bounded({"traceparent": "a", "baggage": long}) == {"traceparent": "a"}
    assert bounded({"traceparent": long, "tracestate": "a"}) == {}
    assert bounded({"traceparent": "\ud800"}) == {"traceparent": "\ud800"}


@pytest.mark.parametrize(
    "metadata",
    ["", "{}", "null", "[]", "7", '"a"', "{", f'{{"{KEY}": 7}}', f'{{"{KEY}": []}}', "[" * 100_000,
     f'{{"{KEY}": {{"traceparent": 7}}}}', f'{{"{KEY}": {{"traceparent": ["a"]}}}}'],
)  # fmt: skip
def test_any_metadata_can_be_read(metadata: str) -> None:
    assert headers_of_detail(json.dumps({"metadata": metadata})) == {}
    assert headers_of_detail(metadata) == {}
    assert headers_of_detail(None) == {}


@pytest.mark.parametrize("parent", ["", "00-x", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "é"])
def test_headers_that_are_none_cost_the_link(telemetry: Telemetry, parent: str) -> None:
    result = tasks.add.enqueue(1, 2)
    Job.objects.filter(pk=result.id).update(metadata={KEY: {"traceparent": parent}})
    run_jobs()
    [process] = telemetry.spans("process ")
    assert process.links == ()


def test_metrics_count_what_was_sent_and_consumed(telemetry: Telemetry, worker: Start) -> None:
    queue = "counted by opentelemetry"
    worker()
    tasks.add.using(queue_name=queue).enqueue(1, 2)
    tasks.fail_once.using(queue_name=queue).enqueue()
    wait_until(lambda: len(telemetry.spans("process ")) == 2)

    def of(name: str) -> dict[tuple[Any, Any], Any]:
        return {
            (point.attributes[names.TASK], point.attributes.get(names.OUTCOME)): point
            for point in telemetry.points(name)
            if point.attributes[names.DESTINATION_NAME] == queue
        }

    done, failed = "tests.tasks.add", "tests.tasks.fail_once"
    # The duration is noted when the span has ended.
    wait_until(lambda: len(of(names.PROCESS_DURATION)) == 2)
    assert of(names.SENT_MESSAGES)[done, None].value == 1
    assert of(names.OPERATION_DURATION)[failed, None].count == 1
    assert of(names.PROCESS_DURATION)[done, "successful"].count == 1
    point = of(names.PROCESS_DURATION)[failed, "failed"]
    assert point.attributes[names.ERROR_TYPE] == "tests.tasks.Mishap"
    assert tuple(point.explicit_bounds) == names.DURATION_BOUNDS
    # The tally: what is stored.
    consumed = wait_until(lambda: found if len(found := of(names.CONSUMED_MESSAGES)) == 2 else None)
    assert {key: point.value for key, point in consumed.items()} == {
        (done, "successful"): 1, (failed, "failed"): 1,
    }  # fmt: skip


def test_off_it_leaves_no_trace(sdk: Telemetry) -> None:
    sdk.exporter.clear()
    result = tasks.add.enqueue(1, 2)
    run_jobs()
    assert Job.objects.get(pk=result.id).metadata == {}
    assert sdk.exporter.get_finished_spans() == ()


def test_a_tracer_that_raises_stops_nothing(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from django_pgjobs.tracing import otel

    tracers._told.clear()
    monkeypatch.setattr(otel, "_attributes", lambda *given: 1 / 0)
    results = [tasks.add.enqueue(1, number) for number in range(3)]
    run_jobs()
    for result in results:
        assert Job.objects.get(pk=result.id).status == "successful"
    assert caplog.text.count("ZeroDivisionError: division") == 2
    assert caplog.text.count("what traces jobs raised, at the enqueue") == 1


def test_a_package_that_is_not_there_is_told_of_once(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert check_tracing() == []
    settings.PGJOBS = {**settings.PGJOBS, "OPENTELEMETRY": True, "SENTRY_TRACING": True}
    assert check_tracing() == []
    for name in ("django_pgjobs.tracing.otel", "django_pgjobs.tracing.sentry"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("opentelemetry.trace", "sentry_sdk"):
        monkeypatch.setitem(sys.modules, name, None)
    found = check_tracing()
    assert [(each.id, each.level) for each in found] == [("pgjobs.W008", WARNING)] * 2
    tracers._tell_that_it_lacks.cache_clear()
    for _ in range(3):
        tasks.add.enqueue(1, 2)
    run_jobs()
    assert caplog.text.count("pip install opentelemetry-api, or turn it off.") == 1
    assert caplog.text.count("pip install sentry-sdk, or turn it off.") == 1
    settings.PGJOBS = {"OPENTELEMETRY": 7}
    assert check_tracing() == []


def test_a_package_that_is_broken_stops_no_enqueue(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("half installed")

    monkeypatch.setitem(sys.modules, "django_pgjobs.tracing.otel", Broken())  # type: ignore[arg-type]
    settings.PGJOBS = {**settings.PGJOBS, "OPENTELEMETRY": True}
    tasks.add.enqueue(1, 2)
    assert Job.objects.get().metadata == {}


def test_names_are_those_of_the_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import messaging_attributes
    from opentelemetry.semconv._incubating.metrics import messaging_metrics
    from opentelemetry.semconv.attributes import error_attributes
    from sentry_sdk.consts import OP, SPANDATA

    known = {
        value
        for module in (messaging_attributes, messaging_metrics, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    known |= {value for value in vars(SPANDATA).values() if isinstance(value, str)}
    known |= {OP.QUEUE_PROCESS, OP.QUEUE_PUBLISH}
    ours = {
        value
        for name, value in vars(names).items()
        if isinstance(value, str) and value.startswith(("messaging.", "error.", "queue."))
    }
    assert len(ours) == 16
    assert ours <= known
