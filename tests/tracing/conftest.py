"""OpenTelemetry's SDK and Sentry's, each with what it would send kept in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sentry_sdk
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_pgjobs.compat import TASKS_PACKAGE
from tests.worker.support import ThreadedWorker


@pytest.fixture(autouse=True)
def _nobody_reads_the_log_of_django_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a worker's process: else a failure would be a second record."""
    monkeypatch.setattr(logging.getLogger(TASKS_PACKAGE), "disabled", True)


@pytest.fixture
def worker(transactional_db: None) -> Iterator[Callable[[], ThreadedWorker]]:
    """Start a worker, once what it is to be traced by is set up."""
    started: list[ThreadedWorker] = []

    def start() -> ThreadedWorker:
        started.append(ThreadedWorker())
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.close()


class Telemetry:
    """What OpenTelemetry's SDK would export."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        spans = TracerProvider()
        spans.add_span_processor(SimpleSpanProcessor(self.exporter))
        # Both can be set once in the life of a process.
        trace.set_tracer_provider(spans)
        metrics.set_meter_provider(MeterProvider([self.reader]))

    def spans(self, prefix: str) -> list[Any]:
        """Return the spans that have ended, in order, whose names begin so."""
        found = self.exporter.get_finished_spans()
        return [span for span in found if span.name.startswith(prefix)]

    def points(self, name: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture(scope="session")
def sdk() -> Telemetry:
    return Telemetry()


@pytest.fixture
def telemetry(sdk: Telemetry, settings: Any) -> Telemetry:
    """OpenTelemetry, switched on."""
    sdk.exporter.clear()
    settings.PGJOBS = {**settings.PGJOBS, "OPENTELEMETRY": True}
    return sdk


class Kept(Transport):
    """Keeps what Sentry's SDK would send."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.items: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.items += [item.payload.json for item in envelope.items if item.payload.json]

    def transactions(self, op: str) -> list[dict[str, Any]]:
        """Return the transactions of this operation."""
        return [
            item
            for item in self.items
            if item.get("type") == "transaction" and item["contexts"]["trace"]["op"] == op
        ]

    def errors(self) -> list[dict[str, Any]]:
        """Return the events of errors."""
        return [item for item in self.items if "exception" in item]


@pytest.fixture
def sentry(settings: Any) -> Iterator[Kept]:
    """Sentry, switched on."""
    kept = Kept()
    before = sentry_sdk.get_global_scope().client
    sentry_sdk.init(
        "https://key@sentry.invalid/1",
        transport=kept,
        traces_sample_rate=1.0,
        # Django's would be set up for the whole process.
        auto_enabling_integrations=False,
    )
    settings.PGJOBS = {**settings.PGJOBS, "SENTRY_TRACING": True}
    yield kept
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(before)
