"""How rules of schedules are told to people."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgjobs.values.moments import exact_duration


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (timedelta(seconds=10), "10 s"),
        (timedelta(seconds=0.5), "0.5 s"),
        (timedelta(minutes=61, seconds=40), "1 h 1 min 40 s"),
        (timedelta(days=1), "1 d"),
        (timedelta(days=1, hours=2), "1 d 2 h"),
        (timedelta(seconds=-90), "-1 min 30 s"),
    ],
)
def test_a_length_of_time_that_somebody_gave_is_told_whole(time: timedelta, text: str) -> None:
    assert exact_duration(time.total_seconds()) == text
