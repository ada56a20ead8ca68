"""Whether a backlog becomes more or less, and when it will be gone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from django_pgjobs.admin.overview.trend import trend_per_minute, trend_text
from django_pgjobs.queries.numbers import Size

NOW = 1_800_000_000.0


def size(ready: int, *, is_cut: bool = False) -> Size:
    now = datetime.fromtimestamp(NOW, UTC)
    return Size(None, ready, 0, 0, 0, 0, now, is_cut)


def samples(*ready: int) -> list[tuple[float, int]]:
    """Return samples of so many ready jobs, one a minute, the last of them a minute ago."""
    return [(NOW - 60 * (len(ready) - place), jobs) for place, jobs in enumerate(ready)]


@pytest.mark.parametrize(
    ("before", "ready", "text"),
    [
        ([480, 450, 420], 390, "gone in about 13 min"),
        ([300, 330, 360], 390, "grows by 30 a minute"),
        ([390, 390], 390, "stays as it is"),
        # What came at once is worked off since then.
        ([0, 0, 8_000, 7_000], 6_000, "gone in about 6 min"),
        ([900, 100, 200], 300, "grows by 100 a minute"),
        ([1_000_060], 1_000_000, "shrinks by 60 a minute"),
        ([2_000], 30, "gone in about 1 s"),
        ([160], 100, "gone in about 100 s"),
        ([500], 9, ""),
        ([], 390, ""),
    ],
)
def test_the_trend_in_words(before: list[int], ready: int, text: str) -> None:
    assert trend_text(samples(*before), size(ready)) == text


def test_what_is_not_known_has_no_trend() -> None:
    assert trend_text(samples(900), size(100, is_cut=True)) == ""
    assert trend_text([(NOW - 700, 900)], size(100)) == ""


def test_a_sample_that_is_the_number_itself_is_no_second_point() -> None:
    assert trend_text([(NOW - 60, 160), (NOW, 100)], size(100)) == "gone in about 100 s"
    assert trend_text([(NOW, 100)], size(100)) == ""


def test_it_looks_back_to_the_last_turn_and_no_further() -> None:
    assert trend_per_minute([(0, 9), (60, 1), (120, 3), (180, 5)]) == 2
    assert trend_per_minute([(0, 1), (60, 9), (120, 7), (180, 5)]) == -2
    assert trend_per_minute([(0, 9)]) is None
    # Of ten minutes at most.
    assert trend_per_minute([(0, 1), (700, 10), (760, 12), (1_300, 20)]) == 1
