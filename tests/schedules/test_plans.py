"""Plans over outages of any length, beside a simple list of what each policy wants."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_pgjobs.occurrences.planning import occurrences_until
from django_pgjobs.queries.schedules import ScheduleRow
from django_pgjobs.schedules.plans import ON_TIME, TICK, delay_of, plan, rule_of
from tests.schedules import tasks

HOUR = timedelta(hours=1)
# An hour before the clock of Lord Howe is put forward, and that of Berlin back.
BEGINS = {
    "Australia/Lord_Howe": datetime(2026, 10, 3, 14, tzinfo=UTC),
    "Europe/Berlin": datetime(2026, 10, 25, 0, tzinfo=UTC),
}
TIMES: list[dict[str, Any]] = [
    {"cron": "*/7 * * * *"},
    {"cron": "30 1,2 * * *"},
    {"cron": "15 2 * * *", "skipped_time": "never", "repeated_time": "twice"},
    {"every": 137.0},
    {"every": 20.0},
]


def make_row(**columns: Any) -> ScheduleRow:
    """Return a row that is to be planned."""
    given: dict[str, Any] = dict.fromkeys(ScheduleRow._fields)
    given |= {
        "name": "x",
        "task_path": tasks.note_time.module_path,
        "args": "[]",
        "kwargs": "{}",
        "timezone": "UTC",
        "except_dates": [],
        "jitter": 0.0,
        "missed": "latest",
        "grace": 86400.0,
        "overlap": "allow",
        "runs": 0,
        "error": "",
    }
    given |= columns
    given["read_at"] = given["now"]
    return ScheduleRow(**given)


def turns(rng: random.Random, begin: datetime) -> Iterator[datetime]:
    """Yield when a scheduler takes its turns: mostly often, sometimes not for hours."""
    now = begin
    while now < begin + 8 * HOUR:
        yield now
        now += timedelta(seconds=rng.choice([1, 10, 30, 59, 61, 300, 3000, 9000]) * rng.random())


def wanted(seen: list[datetime], now: datetime, missed: str, grace: timedelta) -> list[datetime]:
    """Return which of the occurrences that are seen at once are to be enqueued."""
    on_time = [at for at in seen if now - at <= ON_TIME]
    late = [at for at in seen if now - at > ON_TIME and now - at <= grace]
    if missed == "all":
        return late + on_time
    if missed == "latest" and not on_time:
        return late[-1:]
    return on_time


@pytest.mark.parametrize("missed", ["latest", "skip", "all"])
@pytest.mark.parametrize("zone", sorted(BEGINS))
def test_each_occurrence_is_what_its_policy_says(zone: str, missed: str) -> None:
    rng = random.Random(f"{zone} {missed}")
    begin = BEGINS[zone]
    for times in TIMES:
        for grace in (timedelta(minutes=5), HOUR, timedelta(days=1)):
            row = make_row(
                **times, timezone=zone, missed=missed, grace=grace.total_seconds(), now=begin
            )
            check_all(row, list(turns(rng, begin)), grace)


def check_all(row: ScheduleRow, moments: list[datetime], grace: timedelta) -> None:
    """Take a turn at each moment, and compare what was enqueued in all."""
    rule, before = rule_of(row), moments[0]
    row = row._replace(next_at=plan(row, tasks.note_time).next_at)
    for now in moments:
        seen = [each.at for each in occurrences_until(rule, before, now)]
        found: list[datetime] = []
        while row.next_at is not None and row.next_at <= now:
            done = plan(row._replace(now=now), tasks.note_time)
            assert not done.error
            found += done.due
            row = row._replace(next_at=done.next_at)
        expected = wanted(seen, now, row.missed, grace)
        assert found == expected, (row, now)
        before = now
    assert row.next_at is not None
    assert row.next_at > moments[-1]


def test_what_is_left_out_is_said_once_with_how_far_it_reaches() -> None:
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    row = make_row(every=60.0, missed="skip", next_at=now - 5 * HOUR, now=now)
    done = plan(row, tasks.note_time)
    assert done.due == (now - ON_TIME, now)
    assert done.left_out is not None
    assert done.left_out.scheduled_for == now - 5 * HOUR
    assert str((now - ON_TIME).time()) in done.left_out.note


def test_a_clock_that_is_set_back_repeats_nothing() -> None:
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    row = make_row(every=60.0, next_at=now, now=now)
    following = plan(row, tasks.note_time).next_at
    assert following == now + timedelta(minutes=1)
    again = plan(row._replace(next_at=following, now=now - HOUR), tasks.note_time)
    assert (again.due, again.next_at) == ((), following)


def test_the_delay_of_a_job_is_the_same_for_everybody_and_less_than_the_jitter() -> None:
    instant = datetime(2026, 5, 1, 12, tzinfo=UTC)
    delays = [delay_of("x", instant + number * TICK, HOUR) for number in range(100)]
    assert delays == [delay_of("x", instant + number * TICK, HOUR) for number in range(100)]
    assert len(set(delays)) == 100
    assert all(timedelta() <= delay < HOUR for delay in delays)
    assert max(delays) > 0.9 * HOUR
    assert min(delays) < 0.1 * HOUR
