"""pause() and resume(): what they write, what they refuse, and what the claim makes of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.db import transaction

from django_pgjobs import apause, aresume, pause, resume
from django_pgjobs.models import Pause
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.factories import get_job, make_job

pytestmark = pytest.mark.django_db

SOON = timedelta(hours=1)


def pauses() -> list[tuple[str, str, str, str]]:
    return list(Pause.objects.order_by("id").values_list("kind", "name", "reason", "paused_by"))


def test_a_pause_is_a_row_with_its_reason_and_who_made_it() -> None:
    """S1.15."""
    assert pause(queue="mail", reason="PDF bug", by="anna")
    assert pause(task=tasks.add)
    assert pause(task="shop.tasks.old")
    assert pause(key="shop:*")
    assert pauses() == [
        ("queue", "mail", "PDF bug", "anna"),
        ("task", "tests.tasks.add", "", ""),
        ("task", "shop.tasks.old", "", ""),
        ("key", "shop:*", "", ""),
    ]
    assert set(Pause.objects.values_list("resume_at", flat=True)) == {None}


def test_a_pause_of_what_is_paused_changes_its_reason_and_end() -> None:
    pause(queue="mail", reason="PDF bug")
    before = Pause.objects.get()
    assert pause(queue="mail", reason="still", until=SOON)
    after = Pause.objects.get()
    assert (after.reason, after.paused_at) == ("still", before.paused_at)
    assert after.resume_at - before.paused_at >= SOON
    assert pause(queue="mail", reason="still")
    assert Pause.objects.get().resume_at is None


def test_a_pause_that_changes_nothing_says_so() -> None:
    assert pause(queue="mail", reason="PDF bug", by="anna")
    assert not pause(queue="mail", reason="PDF bug", by="anna")


def test_a_pause_that_was_over_begins_anew() -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    Pause.objects.create(kind="queue", name="mail", paused_at=long_ago, resume_at=long_ago)
    assert pause(queue="mail")
    assert Pause.objects.get().paused_at > long_ago


def test_resume_says_whether_something_was_paused() -> None:
    pause(key="shop:*")
    assert not resume(key="shop:1")
    assert resume(key="shop:*")
    assert not resume(key="shop:*")
    assert pauses() == []


def test_the_resume_of_a_pause_that_is_over_changes_nothing() -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    Pause.objects.create(kind="queue", name="mail", resume_at=long_ago)
    assert not resume(queue="mail")
    assert pauses() == []


@pytest.mark.parametrize("end", [SOON, datetime(2999, 1, 1, tzinfo=UTC)], ids=["delay", "instant"])
def test_a_pause_may_have_an_end(end: Any) -> None:
    pause(queue="mail", until=end)
    resume_at = Pause.objects.get().resume_at
    expected = datetime.now(UTC) + end if isinstance(end, timedelta) else end
    assert abs(resume_at - expected) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "expected one of queue=, task= and key=, got none"),
        ({"queue": "mail", "key": "shop:1"}, "got queue, key"),
        ({"queue": 17}, "expected queue= to be text, got 17"),
        ({"task": len}, "expected task= to be a task or its path"),
        ({"queue": "mail", "until": 60}, "expected until to be a datetime or a timedelta, got 60"),
        ({"queue": "mail", "reason": None}, "expected reason= to be text"),
        ({"queue": "mail", "by": 17}, "expected by= to be text"),
    ],
)
def test_what_is_no_pause_is_a_type_error(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        pause(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"queue": ""}, "expected queue= to be one line of 1 to 128 bytes"),
        ({"key": "ä" * 257}, "expected key= to be one line of 1 to 512 bytes"),
        ({"queue": "q" * 129}, r"to be one line of 1 to 128 bytes, got 'q{79}\.\.\."),
        ({"queue": "mail\nother"}, "expected queue= to be one line"),
        ({"queue": "mail", "reason": "x" * 501}, "reason= of at most 500 characters, got 501"),
        ({"queue": "mail", "by": "x" * 10**7}, "by= of at most 500 characters, got 10000000"),
        ({"queue": "mail\0"}, "without NUL"),
        ({"queue": "mail*"}, "Only keys have patterns"),
        ({"task": "shop.*"}, "Only keys have patterns"),
        (
            {"queue": "mail", "until": datetime.max.replace(tzinfo=UTC)},
            r"until from 0001-01-02 00:00\+00:00 to 9999-12-30 00:00\+00:00, got",
        ),
        ({"queue": "mail", "reason": "\ud800"}, "surrogates"),
    ],
)
def test_values_that_no_pause_can_have_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pause(**arguments)
    assert pauses() == []


def test_resume_refuses_the_same_targets() -> None:
    with pytest.raises(TypeError, match=r"resume\(\) expected one of"):
        resume()
    with pytest.raises(ValueError, match=r"resume\(\) expected queue= to be one line"):
        resume(queue="")


@pytest.mark.parametrize(
    "target",
    [{"queue": "mail"}, {"task": tasks.add}, {"key": "shop:7"}, {"key": "shop:*"}, {"key": "*"}],
    ids=["queue", "task", "key", "pattern", "star"],
)
def test_nothing_that_is_paused_is_claimed_and_all_of_it_after_resume(target: Any) -> None:
    """S1.15."""
    mine = make_job(queue_name="mail", concurrency_key="shop:7")
    other = make_job("tests.tasks.echo", args=[])
    pause(**target)
    assert run_jobs() == 1
    assert (get_job(mine).status, get_job(other).status) == ("ready", "successful")
    resume(**target)
    assert run_jobs() == 1


@pytest.mark.parametrize("pattern", ["shop_7", "shop%", "SHOP:7", "shop", "hop:7", "shop:7*8"])
def test_a_pattern_means_nothing_but_its_stars(pattern: str) -> None:
    make_job(concurrency_key="shop:7")
    pause(key=pattern)
    assert run_jobs() == 1


def test_a_pause_holds_until_its_end_and_no_longer() -> None:
    make_job()
    pause(queue="default", until=SOON)
    assert run_jobs() == 0
    Pause.objects.update(resume_at=datetime.now(UTC))
    assert run_jobs() == 1


@pytest.mark.django_db(transaction=True)
def test_a_pause_that_is_rolled_back_never_was(
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    listener = open_connection()
    listener.execute("LISTEN pgjobs_control")
    with transaction.atomic():
        pause(queue="mail")
        transaction.set_rollback(True)
    assert pauses() == []
    listener.execute("NOTIFY pgjobs_control, 'last'")
    heard = [notification.payload for notification in listener.notifies(timeout=15, stop_after=1)]
    assert heard == ["last"]


@pytest.mark.django_db(transaction=True)
def test_workers_hear_of_every_change_and_of_nothing_else(
    open_connection: Callable[..., psycopg.Connection],
) -> None:
    listener = open_connection()
    listener.execute("LISTEN pgjobs_control")
    pause(queue="mail")
    pause(queue="mail")
    resume(queue="mail")
    resume(queue="mail")
    listener.execute("NOTIFY pgjobs_control, 'last'")
    heard = [notification.payload for notification in listener.notifies(timeout=15, stop_after=3)]
    assert heard == ["", "", "last"]


@pytest.mark.django_db(transaction=True)
def test_the_async_twins_do_the_same() -> None:
    assert async_to_sync(apause)(queue="mail", reason="PDF bug")
    assert pauses() == [("queue", "mail", "PDF bug", "")]
    assert async_to_sync(aresume)(queue="mail")
