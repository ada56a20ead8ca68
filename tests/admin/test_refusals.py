"""What the package refuses is said in the language of the person who typed it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils.translation import override

from django_pgjobs.admin.refusals import KNOWN, in_words
from django_pgjobs.control import pauses
from django_pgjobs.declaring.registry import find_task
from django_pgjobs.declaring.signatures import check_signature
from django_pgjobs.models import Schedule
from django_pgjobs.occurrences.rule import Rule
from django_pgjobs.schedules import control
from django_pgjobs.values.payload import decode_value, encode_value
from tests.factories import make_job
from tests.tasks import add
from tests.test_admin import page
from tests.test_translations import ENGLISH

NIGHTLY = {"cron": "0 3 * * *"}
DAY = datetime(2030, 1, 1, tzinfo=UTC)
CRON_REASONS = {
    "often": "es sind mehr Felder oder weniger",
    "99 * * * *": "diese Minute gibt es nicht",
    "* 99 * * *": "diese Stunde gibt es nicht",
    "* * 99 * *": "diesen Tag des Monats gibt es nicht",
    "* * * 99 *": "diesen Monat gibt es nicht",
    "* * * * 99": "diesen Wochentag gibt es nicht",
    "99 * * * * *": "diese Sekunde gibt es nicht",
}
JSON_REASONS = {
    "[1,": "ein Wert fehlt",
    "[1 2]": "„,“ fehlt",
    '{"a" 1}': "„:“ fehlt",
    "{a: 1}": "ein Name in doppelten Anführungszeichen fehlt",
    "[1] 2": "hinter dem Ende steht noch etwas",
    '"a': "ein Text, der hier beginnt, hat kein Ende",
}
REFUSED: dict[str, Callable[[], Any]] = {
    "none": lambda: Rule(),
    "both": lambda: Rule(cron="0 3 * * *", every=timedelta(hours=1)),
    "time zone": lambda: Rule(cron="0 3 * * *", timezone="Mars/Olympus"),
    "end": lambda: Rule(cron="0 3 * * *", starts=DAY, ends=DAY),
    "missing": lambda: check_signature(add, [], {}),
    "misnamed": lambda: check_signature(add, [], {"zz": 1}),
    "unexpected": lambda: check_signature(add, [1, 2], {"zz": 1}),
    "twice": lambda: check_signature(add, [1, 2], {"a": 1}),
    "too many": lambda: check_signature(add, [1, 2, 3], {}),
    "task": lambda: find_task("nothing.there"),
    "name": lambda: pauses.pause(queue="x" * 300),
    "size": lambda: encode_value("x" * 100, name="args", max_bytes=50),
    "number": lambda: encode_value(float("nan"), name="args", max_bytes=50),
    "large": lambda: decode_value("1e999"),
    **{f"cron {text}": partial(Rule, cron=text) for text in CRON_REASONS},
    **{f"JSON {text}": partial(decode_value, text) for text in JSON_REASONS},
}


def refusal(name: str) -> Exception:
    """Return the exception of something that is refused."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        REFUSED[name]()
    return caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_the_german_keeps_what_a_refusal_quotes(name: str) -> None:
    """Names, numbers and what was given; but for where in a text JSON ends, told twice."""
    text = re.sub(r" \(char \d+\)", "", str(refusal(name)))
    with override("de"):
        said = in_words(text)
    details = re.findall(r"'([^']+)'|(\b\d[\d:-]*|\bnan\b)", text)
    assert [detail for pair in details for detail in pair if detail not in said] == []


@pytest.mark.parametrize("cron", CRON_REASONS)
def test_the_german_says_what_is_wrong_with_a_cron_text(cron: str) -> None:
    with pytest.raises(ValueError, match="expected cron") as caught:
        Rule(cron=cron)
    with override("de"):
        assert f"„{cron}“: {CRON_REASONS[cron]}." in in_words(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    JSON_REASONS.items(),
)
def test_the_german_says_what_is_wrong_with_json(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="line 1") as caught:
        decode_value(text)
    with override("de"):
        assert in_words(caught.value).endswith(f"ist nicht lesbar: {why}.")


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_said_in_german(name: str) -> None:
    error = refusal(name)
    with override("de"):
        said = in_words(error)
    assert said != str(error)
    assert not ENGLISH.search(said), said


@pytest.mark.parametrize("name", REFUSED)
def test_in_english_it_is_what_the_exception_says(name: str) -> None:
    error = refusal(name)
    with override("en"):
        assert in_words(error) == str(error)


def test_what_is_not_known_stays_as_it_is() -> None:
    with override("de"):
        assert in_words(ValueError("something else")) == "something else"


@pytest.mark.django_db
def test_a_range_with_too_many_occurrences_is_refused_in_german() -> None:
    Schedule.objects.create(name="often", task_path="tests.tasks.add", every=60.0)
    first, last = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="at most") as caught:
        control.occurrences_to_backfill("often", first, last)
    with override("de"):
        assert not ENGLISH.search(in_words(caught.value))


@pytest.mark.django_db
def test_a_schedule_that_cannot_run_says_why_in_german(admin_client: Client) -> None:
    Schedule.objects.create(name="bare", task_path="tests.tasks.add", every=60.0)
    with override("de"):
        response = admin_client.post(
            page("schedule", "do"), {"name": "bare", "do": "run"}, follow=True
        )
    text = unescape(response.content.decode())
    assert "Der Zeitplan „bare“ kann nicht ausgeführt werden" in text
    assert "„a“ fehlt." in text


@pytest.mark.django_db
def test_a_copy_with_wrong_arguments_says_so_in_german(admin_client: Client) -> None:
    given = {"args": "[1", "kwargs": "{}", "queue_name": "default", "priority": "0"}
    with override("de"):
        response = admin_client.post(page("job", "copy", make_job()), given)
    text = unescape(response.content.decode())
    assert "Zeile 1, Spalte 3 ist nicht lesbar: " in text
    assert "delimiter" not in text


def reasons(text: str) -> Iterator[re.Match[str]]:
    """Yield what a text is found by that gives a reason."""
    for pattern, _said in KNOWN:
        found = pattern.fullmatch(text)
        if found and "why" in found.groupdict():
            yield found


def test_every_entry_is_reached() -> None:
    """One that no exception begins with says nothing to anybody."""
    texts = [str(refusal(name)) for name in REFUSED]
    texts += [text.rpartition("arguments given: ")[2] for text in texts]
    texts += [found["why"] for text in texts for found in reasons(text)]
    unreached = [
        pattern.pattern for pattern, _said in KNOWN if not any(map(pattern.fullmatch, texts))
    ]
    # These need rows, or a person who makes a schedule; eleven are of jobs that stay as they are.
    assert len(unreached) == 15, unreached
