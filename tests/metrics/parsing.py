"""Reads Prometheus' text format, and refuses what a strict reader would."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{{LABEL}(?:,{LABEL})*\}})? (?:[-+]?[0-9.e+-]+|\+Inf|NaN)")
SUFFIX = {"histogram": ("_bucket", "_sum", "_count")}

Labels = Mapping[str, str]


def read(text: bytes) -> dict[str, Metric]:
    """Return the metrics of a text by name, each in one piece and complete."""
    said = text.decode()
    assert said == "" or said.endswith("\n")
    seen: set[str] = set()
    current = kind = ""
    lines = said.split("\n")[:-1]
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in seen, f"{current} is in two pieces"
            seen.add(current)
        elif line.startswith("# TYPE "):
            assert before.startswith(f"# HELP {current} "), line
            kind = line.split(" ")[3]
            assert line == f"# TYPE {current} {kind}"
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] in {current + end for end in SUFFIX.get(kind, ("",))}, line
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series)), "a series is there twice"
    metrics = {_full_name(metric): metric for metric in text_string_to_metric_families(said)}
    assert set(metrics) == seen
    for metric in metrics.values():
        if metric.type == "histogram":
            _check_histogram(metric)
    return metrics


def _full_name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def _check_histogram(metric: Metric) -> None:
    groups: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    counts = {}
    for sample in metric.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        key = tuple(sorted(labels.items()))
        if sample.name.endswith("_bucket"):
            bound = float(sample.labels["le"].replace("+Inf", "inf"))
            groups.setdefault(key, []).append((bound, sample.value))
        elif sample.name.endswith("_count"):
            counts[key] = sample.value
    for key, buckets in groups.items():
        assert buckets == sorted(buckets), "the buckets ascend, and are cumulative"
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1] == (float("inf"), counts[key])


def value_of(metrics: Mapping[str, Metric], name: str, **labels: str) -> float | None:
    """Return the value of one sample; None if it is not there."""
    for metric in metrics.values():
        for sample in metric.samples:
            if sample.name == name and sample.labels == labels:
                return float(sample.value)
    return None
