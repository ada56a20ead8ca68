"""The history checker finds what is too much, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.windows import EPOCH, largest_window

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("seconds", "largest"),
    [
        ([], 0),
        ([5], 1),
        ([0, 1, 2], 1),  # half open: the end is not in it
        ([0, 0.999999, 1], 2),
        ([0.9, 1.0, 1.1, 1.8, 1.9], 4),  # across a full second
        ([3, 0.5, 3, 0.6, 3], 3),
    ],
)
def test_the_largest_window_is_found(seconds: list[float], largest: int) -> None:
    grants = [(EPOCH + timedelta(seconds=second), 1) for second in seconds]
    assert largest_window(grants, SECOND) == largest


def test_tokens_are_counted() -> None:
    grants = [(EPOCH, 3), (EPOCH + SECOND / 2, 2), (EPOCH + SECOND, 4)]
    assert largest_window(grants, SECOND) == 6
