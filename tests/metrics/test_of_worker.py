"""The text that Prometheus reads, and what a worker counts."""

from __future__ import annotations

import math

import pytest

from django_pgjobs.metrics import names
from django_pgjobs.metrics.cells import OUTCOMES, fold
from django_pgjobs.metrics.exposition import Exposition, Metric
from django_pgjobs.metrics.of_worker import (
    BOUNDS,
    WorkerFacts,
    describe_worker,
    named_queues,
)
from django_pgjobs.queries.statistics import LAST_CLASS, Cell
from tests.metrics.parsing import read, value_of

FACTS = WorkerFacts(
    name="web:1",
    version="1.0",
    queues="*",
    slots={"threads": (8, 3), "event loop": (100, 0)},
    renewed_at=1_700_000_000.25,
    is_live=True,
    is_ready=False,
    opened={"pump": 2, "lease": 7},
)


def cell_of(*attempts: tuple[str, float, float]) -> Cell:
    """Return a cell of attempts: how each ended, how long it waited and ran."""
    cell = Cell()
    for outcome, waited, ran in attempts:
        cell.ends[OUTCOMES.index(outcome)] += 1
        cell.waited += waited
        cell.ran += ran
        cell.waits[min(int(waited * 1000).bit_length(), LAST_CLASS)] += 1
        cell.runs[min(int(ran * 1000).bit_length(), LAST_CLASS)] += 1
    return cell


def test_a_series_is_told_once() -> None:
    said = Exposition()
    metric = Metric("jobs", "gauge", "Jobs.", ("queue",))
    for number in (1, 2):
        said.add(metric, number, "mail")
    assert said.text().decode().splitlines()[2:] == ['jobs{queue="mail"} 1']


def test_a_worker_says_how_it_does() -> None:
    metrics = read(describe_worker(FACTS, {}))
    assert value_of(
        metrics, "pgjobs_worker_info", worker="web:1", version="1.0", queues="*"
    ) == 1  # fmt: skip
    assert value_of(metrics, "pgjobs_worker_slots", kind="threads") == 8
    assert value_of(metrics, "pgjobs_worker_slots_busy", kind="threads") == 3
    assert value_of(metrics, "pgjobs_worker_live") == 1
    assert value_of(metrics, "pgjobs_worker_ready") == 0
    assert value_of(metrics, "pgjobs_db_connections_opened_total", role="lease") == 7
    heartbeat = "pgjobs_worker_last_heartbeat_timestamp_seconds"
    assert value_of(metrics, heartbeat) == 1_700_000_000.25


def test_attempts_are_counted_by_queue_task_and_outcome() -> None:
    metrics = read(
        describe_worker(
            FACTS,
            {
                ("mail", "shop.send"): cell_of(
                    ("successful", 0.0, 0.0005), ("successful", 2.0, 0.003), ("failed", 1.0, 1e9)
                ),
                ("mail", "shop.other"): cell_of(("retried", 0.5, 0.1)),
            },
        )
    )
    task = {"queue": "mail", "task": "shop.send"}
    attempts = "pgjobs_attempts_total"
    assert value_of(metrics, attempts, **task, outcome="successful") == 2
    assert value_of(metrics, attempts, **task, outcome="failed") == 1
    assert value_of(metrics, attempts, **task, outcome="cancelled") is None
    ran = "pgjobs_attempt_duration_seconds"
    assert value_of(metrics, f"{ran}_bucket", **task, le="0.001") == 1
    assert value_of(metrics, f"{ran}_bucket", **task, le="0.002") == 1
    assert value_of(metrics, f"{ran}_bucket", **task, le="0.004") == 2
    assert value_of(metrics, f"{ran}_bucket", **task, le="+Inf") == 3
    assert value_of(metrics, f"{ran}_sum", **task) == pytest.approx(1e9 + 0.0035)
    # The wait is one of the queue: all of its tasks together.
    waited = "pgjobs_attempt_wait_seconds"
    assert value_of(metrics, f"{waited}_count", queue="mail") == 4
    assert value_of(metrics, f"{waited}_sum", queue="mail") == 3.5


def test_bounds_ascend_to_infinity() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))
    assert math.isinf(BOUNDS[-1])


@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "a\nb", '\\"\n', "π", " a ", "{a}", "a,b=c", "a\rb", "\u2028", ""]
)
def test_any_name_can_be_read_again(name: str) -> None:
    metrics = read(describe_worker(FACTS, {(name, name): cell_of(("failed", 0.0, 0.0))}))
    assert value_of(metrics, "pgjobs_attempts_total", queue=name, task=name, outcome="failed") == 1


def test_a_lone_surrogate_stops_nothing() -> None:
    assert b'task="?"' in describe_worker(FACTS, {("a", "\ud800"): cell_of(("failed", 0, 0))})


def test_odd_numbers_are_written_as_prometheus_reads_them() -> None:
    metric = Metric("odd", "gauge", "Odd numbers.", ("place",))
    said = Exposition()
    for place, number in enumerate((math.inf, -math.inf, math.nan, 1e300, 10**20, 0.1)):
        said.add(metric, number, str(place))
    lines = said.text().decode().splitlines()[2:]
    assert [line.rpartition(" ")[2] for line in lines] == [
        "+Inf", "-Inf", "NaN", "1e+300", "100000000000000000000", "0.1",
    ]  # fmt: skip


def test_tasks_without_number_are_folded_and_stay_so() -> None:
    cells = {("q", f"task{place}"): cell_of(("failed", 0, 0)) for place in range(600)}
    cells["r", "task3"] = cell_of(("failed", 0, 0))
    cells["r", "task599"] = cell_of(("failed", 0, 0))
    folded = fold(cells)
    assert len({task for _, task in folded}) == names.MAX_TASKS + 1
    assert folded["q", names.OTHERS].ends[1] == 600 - names.MAX_TASKS
    assert folded["r", "task3"].ends[1] == folded["r", names.OTHERS].ends[1] == 1
    # What comes later changes nothing for those that were there.
    cells["a", "a"] = cell_of(("failed", 0, 0))
    assert fold(cells).keys() - folded.keys() == {("a", names.OTHERS)}


def test_queues_fit_into_one_label() -> None:
    assert named_queues(None, ()) == "*"
    assert named_queues(None, ("b", "a")) == "*,-a,-b"
    assert named_queues(("mail", "billing"), ()) == "billing,mail"


def test_metrics_are_called_as_prometheus_asks() -> None:
    for metric in names.OF_WORKERS:
        assert metric.name.startswith("pgjobs_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert "\n" not in metric.help and metric.help.endswith(".")
        if metric.kind == "histogram":
            assert metric.name.endswith("_seconds")
