"""The figures of a run, and the statistics taken of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from tests.benchmarks.measures import Measured
from tests.benchmarks.rows import Figure, Row

BARE = "bare"
OURS = "ours"


@dataclass
class Cell:
    """All measurements of one row for one system."""

    measured: list[Measured] = field(default_factory=list)
    failure: str = ""

    @property
    def is_closed(self) -> bool:
        """Whether another repeat is pointless: it failed or hit the time limit."""
        return bool(self.failure) or any(one.cut for one in self.measured)

    def values(self, figure: str) -> list[float]:
        return [one.figures[figure] for one in self.measured if figure in one.figures]

    def notes(self) -> list[str]:
        return sorted({one.note for one in self.measured if one.note})


@dataclass
class Results:
    systems: list[str]  # in the order of the columns
    titles: dict[str, str]
    skipped: dict[str, str] = field(default_factory=dict)  # system: reason
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)

    def cell(self, row: Row, system: str) -> Cell:
        return self.cells.setdefault((row.key, system), Cell())

    def median(self, row: Row, figure: Figure, system: str) -> float | None:
        values = self.cell(row, system).values(figure.key)
        return statistics.median(values) if values else None

    def ratio(self, row: Row, figure: Figure, system: str, base: str) -> float | None:
        """Return the median of *system* over that of *base*, if both were measured."""
        value = self.median(row, figure, system)
        other = self.median(row, figure, base)
        if value is None or not other:
            return None
        return value / other

    def meets_target(self, row: Row, figure: Figure) -> bool | None:
        """Return whether ours reaches the figure's target; None if that is unknown."""
        ours = self.median(row, figure, OURS)
        if figure.target is None or ours is None:
            return None
        limit = figure.target.limit(self.median(row, figure, BARE))
        if limit is None:
            return None
        return ours >= limit if figure.more_is_better else ours <= limit
