"""The sums by queue and by task, which pages read: they say what the statistics say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, connection
from django.db.models import F

from django_pgjobs.models import Statistic, StatisticSum
from django_pgjobs.queries import numbers, statistics
from django_pgjobs.queries.signs import list_past
from django_pgjobs.queries.statistics import STEPS, Cell, Minute
from tests.chaos.figures import find_unequal_sums
from tests.test_statistics import cell, minutes_ago

pytestmark = pytest.mark.django_db

HOUR = 3600
CELLS: dict[tuple[str, str], Cell] = {
    ("mail", "a"): cell(1, 2, 3, 4, ran=0.5),
    ("mail", "b"): cell(10, 0, 0, 0),
    ("fax", "a"): cell(100, 0, 0, 0),
}


@pytest.fixture
def cursor() -> Iterator[Any]:
    with connection.cursor() as given:
        yield given


def write(cursor: Any, ago: int) -> None:
    """Write what two processes counted in a minute."""
    for _ in range(2):
        statistics.write_statistics(cursor, [Minute(minutes_ago(ago), CELLS)])


def read(cursor: Any) -> list[Any]:
    """Return all that pages read of the sums, of the last days."""
    seconds = 40 * 86_400
    bounds = {"seconds": seconds, "bucket_seconds": seconds}
    names = [
        numbers.list_largest(cursor, **bounds, by_task=by_task, max_names=1).counts
        for by_task in (False, True)
    ]
    return [
        numbers.sum_statistics(cursor, **bounds, times_seconds=seconds)[1:],
        names,
        numbers.times_of(cursor, seconds=seconds),
        numbers.times_of(cursor, seconds=seconds, by_task=True, task_paths=["a"]),
        list_past(cursor, seconds=seconds, earliest=seconds, latest=60),
    ]


def roll_up(cursor: Any) -> Iterator[Callable[[], int]]:
    """Yield what the leader does once a minute, step by step."""
    for take in (statistics.roll_up, statistics.roll_up_sums):
        for step in STEPS:
            yield partial(take, cursor, step)


@pytest.mark.slow
def test_pages_read_the_same_before_between_and_after_each_step(cursor: Any) -> None:
    for ago in (4, 80, 500, 2_000, 20_000):
        write(cursor, ago)
    before = read(cursor)
    assert before[0][0]["mail"] == (110, 20, 30)
    assert sum(before[1][1]["a"].values()) == 5 * 2 * 106
    for step in roll_up(cursor):
        step()
        assert read(cursor) == before
    # And when more is written of minutes that are added up already.
    write(cursor, 4)
    with_late = read(cursor)
    for step in roll_up(cursor):
        step()
        assert read(cursor) == with_late
    periods = StatisticSum.objects.values_list("period", flat=True)
    assert set(periods) == {step.into for step in STEPS}


def test_what_was_written_before_the_clock_was_set_back_is_not_read_yet(cursor: Any) -> None:
    before = read(cursor)
    write(cursor, -500)
    assert read(cursor) == before


def test_a_part_is_in_the_sum_of_its_queue_and_in_that_of_its_task(cursor: Any) -> None:
    write(cursor, 4)
    for step in roll_up(cursor):
        step()
    found = StatisticSum.objects.values_list("queue_name", "task_path", "successful", "failed")
    assert sorted(found, key=str) == [
        ("fax", None, 200, 0), ("mail", None, 22, 4), (None, "a", 202, 4), (None, "b", 20, 0)
    ]  # fmt: skip
    of_task = StatisticSum.objects.get(task_path="a")
    assert (of_task.period, of_task.ran) == ("minute", 1.0)
    assert (of_task.runs, of_task.waits) == ([0, 0, 0, 0, 220], [0, 0, 220, 0, 0])
    assert [str(row).split()[0] for row in StatisticSum.objects.order_by("successful")] == [
        "b", "mail", "fax", "a"
    ]  # fmt: skip


def test_parts_are_entered_once(cursor: Any) -> None:
    write(cursor, 80)
    for step in STEPS:
        statistics.roll_up(cursor, step)
    assert StatisticSum.objects.count() == 2 * len(CELLS)
    assert {row.period for row in Statistic.objects.all()} == {"5 minutes"}


@pytest.mark.slow
def test_of_more_names_than_a_page_has_rows_each_is_added_up(
    cursor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both tables grew by a row of each name and minute, as if nothing was added up."""
    monkeypatch.setattr(statistics, "PAGE", 20)
    cells = {(f"queue-{number}", "a"): cell(1, 0, 0, 0) for number in range(30)}
    day = minutes_ago(0) // 1440 - 20
    for minute in range(0, 1440, 60):
        statistics.write_statistics(cursor, [Minute(day * 1440 + minute, cells)])
    for step in roll_up(cursor):
        while step():
            pass
    assert {row.period for row in (*Statistic.objects.all(), *StatisticSum.objects.all())} == {
        "day"
    }
    # The last name of a page may go on on the next one.
    assert Statistic.objects.count() < 40
    assert StatisticSum.objects.filter(task_path=None).count() < 40
    assert find_unequal_sums(connection.connection) == []


def test_the_chaos_test_notices_sums_that_say_something_else(cursor: Any) -> None:
    write(cursor, 4)
    for step in roll_up(cursor):
        step()
    raw = connection.connection
    assert find_unequal_sums(raw) == []
    StatisticSum.objects.filter(queue_name="mail").update(failed=F("failed") + 1)
    StatisticSum.objects.filter(task_path="b").delete()
    assert [found.partition(":")[0] for found in sorted(find_unequal_sums(raw))] == [
        "queue mail", "task b"
    ]  # fmt: skip


def test_what_is_older_than_it_is_kept_goes(cursor: Any) -> None:
    write(cursor, 4)
    for step in roll_up(cursor):
        step()
    StatisticSum.objects.filter(queue_name=None).update(
        begins_at=F("begins_at") - timedelta(days=3)
    )
    assert statistics.prune_statistics(cursor, retention=2 * 86_400) == 2
    assert {row.task_path for row in StatisticSum.objects.all()} == {None}


@pytest.mark.parametrize("names", [{}, {"queue_name": "mail", "task_path": "a"}])
def test_a_sum_is_of_a_queue_or_of_a_task(names: dict[str, str]) -> None:
    with pytest.raises(IntegrityError):
        StatisticSum.objects.create(begins_at="2026-01-01 00:00Z", **names)
