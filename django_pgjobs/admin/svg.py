"""Numbers as SVG wants them, and small drawings for rows of tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

SPARK_HEIGHT = 20.0
LEAST_SPARK_HEIGHT = 1.5


class Spark(NamedTuple):
    """A small line of bars without an axis."""

    path: str
    width: int
    largest: int


def coordinate(value: float) -> str:
    """Return a number as SVG wants it in every language."""
    return f"{value:.1f}".removesuffix(".0")


def build_spark(counts: Iterable[int]) -> Spark:
    """Return a line of bars for *counts*, the oldest first."""
    jobs = list(counts)
    largest = max(jobs, default=0)
    steps = []
    for place, number in enumerate(jobs):
        if number > 0:
            height = coordinate(max(SPARK_HEIGHT * number / largest, LEAST_SPARK_HEIGHT))
            steps.append(f"M{place * 4} {coordinate(SPARK_HEIGHT)}v-{height}h3v{height}z")
    return Spark("".join(steps), len(jobs) * 4, largest)
