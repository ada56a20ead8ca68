"""When a schedule is due: tables written by hand."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from django.utils.translation import override

from django_pgjobs.occurrences.cron import Cron
from django_pgjobs.occurrences.planning import (
    latest_occurrence,
    next_occurrence,
    occurrences,
    occurrences_until,
)
from django_pgjobs.occurrences.rule import Rule
from django_pgjobs.schedules.words import cron_in_words


def instant(text: str) -> datetime:
    """Return an instant of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shown(after: str, count: int, **options: Any) -> list[str]:
    """Return what the clock of the schedule shows at the next occurrences, and their marks."""
    rule = Rule(**options)
    return [
        f"{planned.at.astimezone(rule.zone):%Y-%m-%d %H:%M:%S%z} {planned.mark}".strip()
        for planned in islice(occurrences(rule, instant(after)), count)
    ]


def test_a_daily_time_that_is_left_out_is_due_after_the_gap() -> None:
    assert shown("2026-03-28", 3, cron="30 2 * * *", timezone="Europe/Berlin") == [
        "2026-03-28 02:30:00+0100",
        "2026-03-29 03:00:00+0200 shifted",
        "2026-03-30 02:30:00+0200",
    ]


def test_or_not_at_all() -> None:
    options = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "skipped_time": "never"}
    assert shown("2026-03-28", 2, **options) == [
        "2026-03-28 02:30:00+0100",
        "2026-03-30 02:30:00+0200",
    ]


def test_a_daily_time_that_comes_twice_is_due_once() -> None:
    assert shown("2026-10-31", 3, cron="30 1 * * *", timezone="America/New_York") == [
        "2026-10-31 01:30:00-0400",
        "2026-11-01 01:30:00-0400 first",
        "2026-11-02 01:30:00-0500",
    ]


def test_or_twice() -> None:
    options = {"cron": "30 1 * * *", "timezone": "America/New_York", "repeated_time": "twice"}
    assert shown("2026-11-01", 3, **options) == [
        "2026-11-01 01:30:00-0400 first",
        "2026-11-01 01:30:00-0500 again",
        "2026-11-02 01:30:00-0500",
    ]


def test_what_goes_by_the_hour_is_due_each_time_the_clock_shows_it() -> None:
    assert shown("2026-10-24T22:50", 4, cron="0 * * * *", timezone="Europe/Berlin") == [
        "2026-10-25 01:00:00+0200",
        "2026-10-25 02:00:00+0200 first",
        "2026-10-25 02:00:00+0100 again",
        "2026-10-25 03:00:00+0100",
    ]
    assert shown("2026-03-28T23:50", 3, cron="30 * * * *", timezone="Europe/Berlin") == [
        "2026-03-29 01:30:00+0100",
        "2026-03-29 03:30:00+0200",
        "2026-03-29 04:30:00+0200",
    ]


def test_half_an_hour_on_lord_howe() -> None:
    options = {"cron": "15 2 * * *", "timezone": "Australia/Lord_Howe"}
    assert shown("2026-10-03", 3, **options) == [
        "2026-10-04 02:30:00+1100 shifted",
        "2026-10-05 02:15:00+1100",
        "2026-10-06 02:15:00+1100",
    ]
    options["cron"] = "45 1 * * *"
    assert shown("2026-04-04", 2, **options) == [
        "2026-04-05 01:45:00+1100 first",
        "2026-04-06 01:45:00+1030",
    ]


def test_ramadan_in_casablanca() -> None:
    """In 2026 the clock is put back on the 15th of February, and forward on the 22nd of March."""
    options = {"cron": "30 2 * * *", "timezone": "Africa/Casablanca"}
    assert shown("2026-02-15", 2, **options) == [
        "2026-02-15 02:30:00+0100 first",
        "2026-02-16 02:30:00+0000",
    ]
    assert shown("2026-03-22", 2, **options) == [
        "2026-03-22 03:00:00+0100 shifted",
        "2026-03-23 02:30:00+0100",
    ]


def test_all_readings_of_a_gap_are_due_once() -> None:
    options = {"cron": "*/10 2 * * *", "timezone": "Europe/Berlin", "skipped_time": "after"}
    assert shown("2026-03-29", 2, **options) == [
        "2026-03-29 03:00:00+0200 shifted",
        "2026-03-30 02:00:00+0200",
    ]
    options["cron"] = "0,30 2,3 * * *"
    assert shown("2026-03-29", 2, **options) == [
        "2026-03-29 03:00:00+0200",
        "2026-03-29 03:30:00+0200",
    ]


def test_a_day_that_a_country_left_out() -> None:
    assert shown("2011-12-29", 2, cron="0 9 * * *", timezone="Pacific/Apia") == [
        "2011-12-29 09:00:00-1000",
        "2011-12-31 00:00:00+1400 shifted",
    ]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("*/20 * * * * *", ["01-01 00:00:20", "01-01 00:00:40", "01-01 00:01:00"]),
        ("0 12 L * *", ["01-31 12:00:00", "02-28 12:00:00", "03-31 12:00:00"]),
        ("0 12 LW * *", ["01-30 12:00:00", "02-27 12:00:00", "03-31 12:00:00"]),
        ("0 12 * * MON#1", ["01-05 12:00:00", "02-02 12:00:00", "03-02 12:00:00"]),
        ("0 12 * * 5L", ["01-30 12:00:00", "02-27 12:00:00", "03-27 12:00:00"]),
        ("0 12 * jan-mar/2 sun", ["01-04 12:00:00", "01-11 12:00:00", "01-18 12:00:00"]),
        ("0 12 13 * FRI", ["01-02 12:00:00", "01-09 12:00:00", "01-13 12:00:00"]),
        ("@monthly", ["02-01 00:00:00", "03-01 00:00:00", "04-01 00:00:00"]),
        ("  0   12 * *  7 ", ["01-04 12:00:00", "01-11 12:00:00", "01-18 12:00:00"]),
    ],
)
def test_the_language_of_cron(cron: str, expected: list[str]) -> None:
    times = [f"2026-{text}+0000" for text in expected]
    assert shown("2026-01-01", 3, cron=cron) == times


def test_an_interval_is_time_that_passes() -> None:
    """Whatever the clock does; it counts from the same instant wherever it is asked."""
    options = {"every": timedelta(hours=6), "timezone": "Europe/Berlin"}
    assert shown("2026-03-28T17:00:01", 3, **options) == [
        "2026-03-28 19:00:00+0100",
        "2026-03-29 01:00:00+0100",
        "2026-03-29 08:00:00+0200",
    ]
    starts = instant("2026-01-01T00:07")
    assert shown("2026-01-01", 2, every=timedelta(minutes=50), starts=starts) == [
        "2026-01-01 00:07:00+0000",
        "2026-01-01 00:57:00+0000",
    ]
    assert shown("2026-01-01T00:57", 1, every=timedelta(minutes=50), starts=starts) == [
        "2026-01-01 01:47:00+0000",
    ]


def test_a_window_begins_with_its_first_instant_and_ends_before_its_last() -> None:
    options = {"starts": instant("2026-01-02"), "ends": instant("2026-01-04")}
    assert shown("2025-01-01", 9, cron="0 0 * * *", **options) == [
        "2026-01-02 00:00:00+0000",
        "2026-01-03 00:00:00+0000",
    ]
    assert shown("2025-01-01", 9, every=timedelta(days=1), **options) == [
        "2026-01-02 00:00:00+0000",
        "2026-01-03 00:00:00+0000",
    ]
    assert shown("2026-01-04", 9, every=timedelta(days=1), **options) == []


def test_excepted_dates_are_those_of_the_time_zone() -> None:
    options: dict[str, Any] = {"timezone": "Asia/Tokyo", "except_dates": [date(2026, 1, 2)]}
    expected = [
        "2026-01-01 21:00:00+0900",
        "2026-01-03 00:00:00+0900",
        "2026-01-03 03:00:00+0900",
    ]
    assert shown("2026-01-01T09:00", 3, cron="0 */3 * * *", **options) == expected
    assert shown("2026-01-01T09:00", 3, every=timedelta(hours=3), **options) == expected


def test_a_second_a_year_is_excepted_without_counting_the_seconds() -> None:
    days = tuple(date(2026, 1, 1) + timedelta(days=number) for number in range(365))
    began = time.process_time()
    for options in ({"cron": "* * * * * *"}, {"every": timedelta(seconds=1)}):
        assert shown("2026-01-01", 1, except_dates=days, **options) == ["2027-01-01 00:00:00+0000"]
    # 31 million seconds one by one would take minutes.
    assert time.process_time() - began < 20


def test_the_latest_of_millions_is_found_at_once() -> None:
    rule = Rule(cron="* * * * * *")
    began = time.process_time()
    found = latest_occurrence(rule, instant("1990-01-01"), instant("2026-01-01T12:00:00.5"))
    assert found is not None
    assert found.at == instant("2026-01-01T12:00:00")
    assert time.process_time() - began < 20


def test_the_latest_is_the_last_of_all() -> None:
    begin = instant("2026-01-01")
    for options in ({"cron": "0 3 1 * *"}, {"cron": "@yearly"}, {"every": timedelta(hours=7)}):
        rule = Rule(timezone="Europe/Berlin", **options)
        for days in (0, 1, 40, 400):
            end = begin + timedelta(days=days)
            every = list(occurrences_until(rule, begin, end))
            assert latest_occurrence(rule, begin, end) == (every[-1] if every else None)


def test_time_ends() -> None:
    rule = Rule(every=timedelta(days=3000))
    assert len(list(occurrences(rule, instant("9980-01-01")))) == 2
    assert next_occurrence(Rule(cron="0 0 29 2 *"), instant("9998-12-31")) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either cron or every, got none"),
        ({"cron": "* * * * *", "every": timedelta(hours=1)}, "got both"),
        ({"cron": "* * * *"}, "wrong number of fields"),
        ({"cron": "60 * * * *"}, "bad minute"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
        ({"cron": "0 0 31 4,6 *"}, "bad day-of-month"),
        ({"cron": "0 0 15W * *"}, "Known are"),
        ({"cron": "0 0 * * L"}, "bad day-of-week"),
        ({"cron": "0 0 */0 * *"}, "bad day-of-month"),
        ({"cron": "5-1 * * * *"}, "bad minute"),
        ({"cron": "٣ * * * *"}, "bad minute"),
        ({"cron": ""}, "up to 256 characters"),
        ({"cron": "1," * 200 + "1 * * * *"}, "up to 256 characters"),
        ({"cron": 5}, "up to 256 characters"),
        ({"cron": "* * * * *", "timezone": "Europe/Berln"}, "a continent and a city such as"),
        ({"cron": "* * * * *", "timezone": "../etc/passwd"}, "expected timezone"),
        ({"cron": "* * * * *", "timezone": ""}, "expected timezone"),
        ({"cron": "* * * * *", "timezone": None}, "expected timezone"),
        ({"cron": "* * * * *", "timezone": "\0"}, "expected timezone"),
        ({"every": timedelta(milliseconds=999)}, "expected every"),
        ({"every": timedelta(days=4000)}, "expected every"),
        ({"every": 60}, "expected every"),
        ({"every": timedelta(hours=1), "skipped_time": "after"}, "with cron only"),
        ({"cron": "* * * * *", "repeated_time": "thrice"}, "once, twice"),
        ({"cron": "* * * * *", "starts": datetime(2026, 1, 1)}, "aware datetime"),  # noqa: DTZ001
        ({"cron": "* * * * *", "starts": datetime.max.replace(tzinfo=UTC)}, "1970 to 9998"),
        (
            {"cron": "@daily", "starts": instant("2026-01-02"), "ends": instant("2026-01-02")},
            "later than starts",
        ),
        ({"cron": "@daily", "except_dates": "2026-01-01"}, "list dates"),
        ({"cron": "@daily", "except_dates": [datetime(2026, 1, 1)]}, "list dates"),  # noqa: DTZ001
        ({"cron": "@daily", "except_dates": [date(2026, 1, 1)] * 1001}, "at most 1000"),
    ],
)
def test_what_makes_no_schedule_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="expected") as refusal:
        Rule(**options)
    assert said in str(refusal.value)


def test_the_expression_is_told_in_words() -> None:
    cron = Rule(cron="0 3 * * MON").parsed_cron
    assert cron is not None
    assert cron.in_words() == "At 03:00 on Monday"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 3 * * mon", "jeden Montag um 03:00 Uhr"),
        ("5 3 * * 0", "jeden Sonntag um 03:05 Uhr"),
        ("5 3 * * 7", "jeden Sonntag um 03:05 Uhr"),
        ("0 3 * * 1-5", "montags bis freitags um 03:00 Uhr"),
        ("@daily", "täglich um 00:00 Uhr"),
        ("30 6 1 * *", "am 1. jedes Monats um 06:30 Uhr"),
        ("*/7 * * * *", "alle 7 Minuten einer Stunde, von Minute 0 an"),
        ("* * * * *", "jede Minute"),
        ("10 * * * *", "jede Stunde, in Minute 10"),
        # There are no words of ours for it, and none of another language.
        ("0 3 * 2 1#2", ""),
        ("0 0 3 * * *", ""),
    ],
)
def test_usual_expressions_are_told_in_the_language_of_the_page(
    expression: str, words: str
) -> None:
    with override("de"):
        assert cron_in_words(Cron(expression)) == words
    with override("en-gb"):
        assert cron_in_words(Cron(expression)).startswith(("At ", "Every "))
