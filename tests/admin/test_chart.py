"""Charts: their numbers, their texts, and coordinates that every language leaves alone."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from django.test import override_settings
from django.utils import translation

from django_pgjobs.admin.overview.chart import (
    RANGES,
    SPLITS,
    STACK,
    Chart,
    Range,
    Series,
    nice_top,
)
from django_pgjobs.admin.overview.chart import build_chart as build_chart_of
from django_pgjobs.admin.overview.series import series_of
from django_pgjobs.admin.svg import SPARK_HEIGHT, build_spark, coordinate
from django_pgjobs.drawing import counted, counting
from django_pgjobs.queries.numbers import Finished

HOUR = RANGES["1h"]
# 2026-11-21 12:00 UTC in minutes; 17:45 in Kathmandu, where the tests are.
NOON = 29_921_040


def build_chart(chosen: Range, last: int, counts: dict[tuple[str, int], int]) -> Chart:
    """Return the chart of jobs by status and bucket."""
    series = [
        Series(
            status.value,
            status.label,
            {bucket: jobs for (name, bucket), jobs in counts.items() if name == status},
            "",
        )
        for status in STACK
    ]
    return build_chart_of(chosen, last, series)


COORDINATE = re.compile(r"[0-9]+(\.[0-9])?")


def test_a_chart_has_a_bar_per_bucket_and_the_last_is_that_of_now() -> None:
    chart = build_chart(HOUR, NOON, {("successful", NOON): 3, ("failed", NOON - 59): 2})
    assert len(chart.bars) == 60
    assert chart.width == 600
    assert chart.bars[-1].counts == [3, 0, 0]
    assert chart.bars[0].counts == [0, 0, 2]
    assert [part.key for part in chart.bars[0].parts] == ["failed"]
    assert chart.jobs == 5


def test_what_is_outside_of_the_range_is_not_drawn() -> None:
    chart = build_chart(HOUR, NOON, {("failed", NOON - 60): 5, ("failed", NOON + 1): 5})
    assert (chart.jobs, chart.top) == (0, 1)


def test_the_parts_of_a_bar_stand_on_each_other() -> None:
    counts = {("successful", NOON): 50, ("cancelled", NOON): 30, ("failed", NOON): 20}
    parts = build_chart(HOUR, NOON, counts).bars[-1].parts
    assert [(part.key, part.y, part.height) for part in parts] == [
        ("successful", "50", "50"),
        ("cancelled", "20", "30"),
        ("failed", "0", "20"),
    ]


def test_one_failure_among_thousands_is_seen() -> None:
    parts = build_chart(HOUR, NOON, {("successful", NOON): 5_000, ("failed", NOON): 1}).bars[-1]
    assert float(parts.parts[-1].height) >= 0.8
    assert float(parts.parts[-1].y) >= 0


def test_a_chart_says_its_totals_and_each_bar_its_time_and_numbers() -> None:
    chart = build_chart(HOUR, NOON, {("successful", NOON): 3, ("failed", NOON): 1})
    assert chart.label == "Jobs finished in the last 1 hour: 3 Successful, 0 Cancelled, 1 Failed."
    assert chart.bars[-1].title == "5:45 p.m. – 5:46 p.m.: 3 Successful, 0 Cancelled, 1 Failed"
    assert chart.ticks[-1] == "5:45 p.m."
    assert len(chart.ticks) == 5


def test_a_week_says_the_day() -> None:
    week = RANGES["7d"]
    chart = build_chart(week, NOON * 60 // week.bucket_seconds, {})
    assert chart.ticks[-1] == "November 21"
    assert chart.bars[-1].time == "November 21 5:45 p.m. – 9:45 p.m."


@pytest.mark.parametrize("key", RANGES)
def test_every_range_ends_now_and_covers_what_it_says(key: str) -> None:
    seconds = {"1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000}[key]
    chosen = RANGES[key]
    assert chosen.bucket_seconds * chosen.buckets == seconds
    assert len(build_chart(chosen, 1_000, {("failed", 1_000): 1}).bars) == chosen.buckets


@pytest.mark.parametrize(
    ("largest", "top"),
    [(0, 1), (1, 1), (2, 2), (3, 5), (7, 10), (10, 10), (11, 20), (999, 1000), (1000, 1000)],
)
def test_the_upper_edge_is_a_round_number(largest: int, top: int) -> None:
    assert nice_top(largest) == top


@override_settings(USE_THOUSAND_SEPARATOR=True)
def test_coordinates_are_the_same_in_every_language() -> None:
    counts = {("successful", NOON): 12_345, ("failed", NOON): 4_321}
    with translation.override("de"):
        chart = build_chart(HOUR, NOON, counts)
        spark = build_spark([1, 7, 1_234])
    drawn = [part for bar in chart.bars for part in bar.parts]
    for text in [bar.x for bar in chart.bars] + [t for p in drawn for t in (p.y, p.height)]:
        assert COORDINATE.fullmatch(text), text
    assert "," not in spark.path
    assert "12.345" in chart.label


def test_a_month_says_the_days() -> None:
    month = RANGES["30d"]
    chart = build_chart(month, NOON * 60 // month.bucket_seconds, {})
    assert chart.bars[-1].time == "November 21 5:45 a.m. – November 22 5:45 a.m."


def chart_by_task(counts: dict[str | None, dict[int, int]]) -> Chart:
    finished = Finished(NOON, datetime.now(UTC), counts)
    return build_chart_of(HOUR, NOON, series_of(finished, HOUR, SPLITS["task"]))


def test_the_names_with_most_jobs_come_first_and_the_rest_is_one() -> None:
    counts: dict[str | None, dict[int, int]] = {"a": {NOON: 1}, "c": {NOON: 2}, "b": {NOON: 2}}
    chart = chart_by_task(counts | {None: {NOON: 5, NOON - 1: 4}})
    assert [(each.key, each.label) for each in chart.legend] == [
        ("1", "b"), ("2", "c"), ("3", "a"), ("others", "others"),
    ]  # fmt: skip
    assert [bool(each.query) for each in chart.legend] == [True, True, True, False]
    assert chart.label.endswith(": 2 b, 2 c, 1 a, 9 others.")
    assert chart.jobs == 14
    assert [each.label for each in chart_by_task(counts).legend] == ["b", "c", "a"]


def test_a_bar_says_the_three_names_with_the_most_jobs_and_counts_all() -> None:
    """However many names there are, and however long: a page has a hundred bars."""
    names = [f"{'shop.' * 100}task_{number}" for number in range(6)]
    counts: dict[str | None, dict[int, int]] = {
        name: {NOON: 1_000 * number} for number, name in enumerate(names)
    }
    title = chart_by_task(counts | {None: {NOON: 7}}).bars[-1].title
    ends = [f"…{name[-39:]}" for name in names]
    assert title == (
        f"5:45 p.m. – 5:46 p.m.: 5,000 {ends[5]}, 4,000 {ends[4]}, 3,000 {ends[3]}, 3,007 others"
    )
    assert chart_by_task({"a": {NOON: 1}, "b": {NOON - 1: 1}}).bars[-1].title.endswith(": 1 a")


def test_the_rows_of_the_table_are_the_bars_with_jobs() -> None:
    counts = {("successful", NOON - 1): 1_234, ("failed", NOON - 1): 1, ("failed", NOON): 2}
    before, now = [bar.time for bar in build_chart(HOUR, NOON, counts).bars[-2:]]
    assert build_chart(HOUR, NOON, counts).rows.splitlines() == [
        f'<tr><th scope="row">{now}</th><td>0</td><td>0</td><td>2</td></tr>',
        f'<tr><th scope="row">{before}</th><td>1,234</td><td>0</td><td>1</td></tr>',
    ]


@pytest.mark.parametrize("language", ["en", "de", "fr", "zh-hans"])
def test_many_numbers_are_written_as_one_is(language: str) -> None:
    numbers = (0, 999, 1_000, 1_234_567)
    with translation.override(language):
        assert list(map(counting(), numbers)) == list(map(counted, numbers))


def test_a_coordinate_has_one_digit_at_most() -> None:
    assert [coordinate(value) for value in (0, 1.0, 2.55, 99.96)] == ["0", "1", "2.5", "100"]


def test_a_spark_has_a_bar_where_there_were_jobs() -> None:
    spark = build_spark([0, 4, 0, 2])
    assert spark.path == f"M4 20v-{coordinate(SPARK_HEIGHT)}h3v20zM12 20v-10h3v10z"
    assert (spark.width, spark.largest) == (16, 4)


def test_a_spark_of_nothing_draws_nothing() -> None:
    assert build_spark([0] * 28).path == ""
    assert build_spark([]).path == ""
