"""The planned times of cron expressions, beside those of a clock that is watched."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from django_pgjobs.occurrences.planning import occurrences_until
from django_pgjobs.occurrences.rule import Rule
from tests.helpers import some_always
from tests.occurrences.clock import watch

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


@pytest.mark.parametrize("expression", some_always(EXPRESSIONS, every=4))
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


@pytest.mark.slow
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
                until = min(after + timedelta(hours=6), end)
                assert planned(rule, after, until) == [at for at in expected if after < at <= until]
            for at in expected[:10]:
                until = min(at + timedelta(hours=6), end)
                assert planned(rule, at, until) == [each for each in expected if at < each <= until]
                just_before = at - timedelta(microseconds=1)
                assert planned(rule, just_before, at) == [at]


# Where clocks do odd things: two hours, half hours, at midnight, a day left out, by the moon, by
# 45 minutes; changes of the offset for good.
ODD_CHANGES = [
    ("Antarctica/Troll", (2026, 3, 29)),
    ("Antarctica/Troll", (2026, 10, 25)),
    ("Antarctica/Casey", (2020, 10, 3)),
    ("Australia/Lord_Howe", (2026, 4, 4)),
    ("Pacific/Apia", (2011, 12, 30)),
    ("Pacific/Chatham", (2026, 4, 4)),
    ("Africa/Casablanca", (2026, 2, 15)),
    ("Africa/El_Aaiun", (2027, 3, 14)),
    ("America/St_Johns", (2006, 10, 29)),
    ("America/Caracas", (2007, 12, 9)),
    ("America/Havana", (2026, 11, 1)),
    ("America/Nuuk", (2026, 10, 25)),
    ("America/Sao_Paulo", (2018, 2, 18)),
    ("Asia/Beirut", (2026, 3, 29)),
    ("Asia/Gaza", (2026, 10, 24)),
    ("Asia/Pyongyang", (2015, 8, 15)),
    ("Asia/Tehran", (2022, 9, 21)),
    ("Europe/Berlin", (2026, 10, 25)),
    ("Europe/Dublin", (2026, 10, 25)),
]
FIELDS = (
    ("*", "0", "30", "*/30", "*/7", "10,50", "0-20", "45"),
    ("*", "*/2", "0", "1", "2", "3", "23", "0-3", "1,2", "22-23"),
    ("*", "*", "*", "1", "31", "24-26"),
    ("*", "*", "2,3,4,10,11"),
    ("*", "*", "0", "6", "6,0", "1-5"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))]
)
def test_any_expression_in_odd_zones_is_due_when_the_clock_shows_it(seed: int) -> None:
    """Also one that is due rarely: what has matched just before a change may be shown again."""
    rng = random.Random(seed)
    for zone, day in ODD_CHANGES:
        begin = datetime(*day, tzinfo=UTC) - timedelta(minutes=rng.randrange(1440))
        end = begin + timedelta(days=2, minutes=rng.randrange(720))
        for _ in range(3):
            text = " ".join(map(rng.choice, FIELDS))
            after_gaps, twice = rng.random() < 0.5, rng.random() < 0.5
            try:
                rule = Rule(
                    cron=text,
                    timezone=zone,
                    skipped_time="after" if after_gaps else "never",
                    repeated_time="twice" if twice else "once",
                )
            except ValueError:  # a day that no month of these has
                continue
            expected = list(watch(text, zone, begin, end, after_gaps=after_gaps, twice=twice))
            assert planned(rule, begin, end) == expected, (rule, begin)


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("Europe/Berlin", "*/30 2 * * SUN", ["00:00", "00:30", "01:00", "01:30"]),
        ("Antarctica/Troll", "*/30 1 * * SUN", ["23:00", "23:30", "01:00", "01:30"]),
    ],
)
def test_a_repeated_hour_of_a_weekly_schedule_is_due_twice(
    zone: str, text: str, expected: list[str]
) -> None:
    begin = datetime(2026, 10, 25, tzinfo=UTC) - timedelta(hours=4)
    found = planned(Rule(cron=text, timezone=zone), begin, begin + timedelta(days=1))
    assert [f"{at:%H:%M}" for at in found] == expected
