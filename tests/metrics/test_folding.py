"""Names without number: the numbers of most of them are told together."""

from __future__ import annotations

from collections import Counter

from django_pgjobs.metrics import names
from django_pgjobs.metrics.of_installation import _folded


def test_tasks_without_number_are_folded() -> None:
    counts: Counter[tuple[str, ...]] = Counter(
        {("q", f"task{place}", "failed"): place + 1 for place in range(names.MAX_TASKS + 10)}
    )
    folded = _folded(counts)
    assert len(folded) == names.MAX_TASKS + 1
    # The least of them.
    assert folded["q", names.OTHERS, "failed"] == sum(range(1, 11))


def test_queues_with_tasks_without_number_are_folded() -> None:
    counts: Counter[tuple[str, ...]] = Counter(
        {(f"queue{place}", "task", "failed"): place + 1 for place in range(names.MAX_PAIRS + 10)}
    )
    folded = _folded(counts)
    assert len(folded) == names.MAX_PAIRS + 1
    assert folded[names.OTHERS, names.OTHERS, "failed"] == sum(range(1, 11))
