"""Prometheus' text format, version 0.0.4.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Metric(NamedTuple):
    """The name of a metric, what it counts, and its labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


class Exposition:
    """The samples of some metrics, each metric in one piece."""

    def __init__(self) -> None:
        self._lines: dict[Metric, dict[str, str]] = {}

    def add(self, metric: Metric, number: float, *values: str) -> None:
        """Add a sample; *values* are those of the metric's labels, in order.

        Of several with the same labels the first one counts: Prometheus refuses a text with both.
        """
        self._add(metric, "", _labels(metric.labels, values), number)

    def add_histogram(
        self,
        metric: Metric,
        bounds: Sequence[float],
        counts: Sequence[int],
        total: float,
        *values: str,
    ) -> None:
        """Add a histogram of *counts* up to the *bounds*, which ascend to infinity."""
        labels = (*metric.labels, "le")
        seen = 0
        for bound, count in zip(bounds, counts, strict=True):
            seen += count
            self._add(metric, "_bucket", _labels(labels, (*values, _number(bound))), seen)
        self._add(metric, "_sum", _labels(metric.labels, values), total)
        self._add(metric, "_count", _labels(metric.labels, values), seen)

    def text(self) -> bytes:
        """Return the whole text."""
        lines = []
        for metric, samples in self._lines.items():
            lines += [
                f"# HELP {metric.name} {metric.help}\n",
                f"# TYPE {metric.name} {metric.kind}\n",
                *samples.values(),
            ]
        return "".join(lines).encode(errors="replace")

    def _add(self, metric: Metric, suffix: str, labels: str, number: float) -> None:
        series = f"{metric.name}{suffix}{labels}"
        self._lines.setdefault(metric, {}).setdefault(series, f"{series} {_number(number)}\n")


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = [
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)
    ]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(number: float) -> str:
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return "NaN" if math.isnan(number) else repr(number)
