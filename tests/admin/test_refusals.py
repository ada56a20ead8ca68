"""What the package refuses is said in the language of the person who typed it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
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
REFUSED: dict[str, Callable[[], Any]] = {
    "cron": lambda: Rule(cron="often"),
    "both": lambda: Rule(),
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
    "JSON": lambda: decode_value("[1,"),
}


def refusal(name: str) -> Exception:
    """Return the exception of something that is refused."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        REFUSED[name]()
    return caught.value


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
    assert "Zeile 1, Spalte 3 ist nicht lesbar." in text
    assert "delimiter" not in text


def test_every_entry_is_reached() -> None:
    """One that no exception begins with says nothing to anybody."""
    texts = [str(refusal(name)) for name in REFUSED]
    texts += [text.rpartition("arguments given: ")[2] for text in texts]
    unreached = [
        pattern.pattern for pattern, _said in KNOWN if not any(map(pattern.fullmatch, texts))
    ]
    # These need rows, or a person who makes a schedule; eleven are of jobs that stay as they are.
    assert len(unreached) == 14, unreached
