"""The planned times of cron expressions, beside those of a clock that is watched."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from django_pgjobs.recurring.planning import occurrences_until
from django_pgjobs.recurring.rule import Rule
from tests.recurring.clock import watch

# Around changes of the clock: a day forward and a day back, in both halves of the Earth; half an
# hour on Lord Howe; twice a year by the moon in Morocco; a change at midnight; a day left out.
CHANGES = [
    ("Europe/Berlin", (2026, 3, 29)),
    ("Europe/Berlin", (2026, 10, 25)),
    ("America/New_York", (2026, 3, 8)),
    ("America/New_York", (2026, 11, 1)),
    ("Australia/Lord_Howe", (2026, 4, 4)),
    ("Australia/Lord_Howe", (2026, 10, 3)),
    ("Africa/Casablanca", (2026, 2, 15)),
    ("Africa/Casablanca", (2026, 3, 22)),
    ("Africa/Cairo", (2026, 4, 23)),
    ("Africa/Cairo", (2026, 10, 29)),
    ("Pacific/Apia", (2011, 12, 30)),
    ("Asia/Kathmandu", (1985, 12, 31)),
    ("UTC", (2026, 6, 1)),
]
EXPRESSIONS = [
    "30 2 * * *",
    "*/15 * * * *",
    "0 * * * *",
    "*/20 2 * * *",
    "0 0 * * *",
    "10 0,1,2,3 * * *",
    "5-55/25 1-3 * * 0,6,7",
    "45 23 1,29,30 * *",
]


def planned(rule: Rule, begin: datetime, end: datetime) -> list[datetime]:
    """Return the instants that the package plans."""
    return [each.at for each in occurrences_until(rule, begin, end)]


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_times_around_a_change_are_those_the_clock_shows(
    zone: str, day: tuple[int, int, int], expression: str
) -> None:
    begin = datetime(*day, tzinfo=UTC) - timedelta(days=1, minutes=1)
    end = begin + timedelta(days=3)
    for after_gaps in (False, True):
        for twice in (False, True):
            rule = Rule(
                cron=expression,
                timezone=zone,
                skipped_time="after" if after_gaps else "never",
                repeated_time="twice" if twice else "once",
            )
            expected = list(watch(expression, zone, begin, end, after_gaps=after_gaps, twice=twice))
            assert planned(rule, begin, end) == expected, rule


@pytest.mark.slow
@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"]
)
def test_a_year_is_as_the_clock_shows_it(zone: str) -> None:
    begin, end = datetime(2025, 12, 31, 23, 59, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    for expression in ("30 2 * * *", "0 */2 * * *"):
        rule = Rule(cron=expression, timezone=zone, skipped_time="after", repeated_time="once")
        expected = watch(expression, zone, begin, end, after_gaps=True, twice=False)
        assert planned(rule, begin, end) == list(expected)


def test_it_does_not_matter_from_where_one_counts() -> None:
    """The next one after any instant is the next of all of them."""
    rng = random.Random(7)
    for zone, day in CHANGES:
        middle = datetime(*day, tzinfo=UTC)
        begin, end = middle - timedelta(days=1), middle + timedelta(days=2)
        for expression in EXPRESSIONS:
            rule = Rule(cron=expression, timezone=zone)
            expected = planned(rule, begin, end)
            for _ in range(10):
                after = begin + timedelta(seconds=rng.uniform(0, 2 * 86400))
                assert planned(rule, after, end) == [at for at in expected if at > after]
            for at in expected[:20]:
                assert planned(rule, at, end) == [later for later in expected if later > at]
                just_before = at - timedelta(microseconds=1)
                assert planned(rule, just_before, end)[0] == at
