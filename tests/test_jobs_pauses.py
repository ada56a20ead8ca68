"""`manage.py jobs pause` and `resume`: what they say of other pauses, and of a wrong end."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from django_pgjobs import pause, resume
from django_pgjobs.models import Pause
from tests.factories import make_job
from tests.schedules.support import make_schedule

pytestmark = pytest.mark.django_db


def test_resume_of_a_key_names_the_patterns_that_still_hold_it(run: Any) -> None:
    pause(key="stock:*", by="anna", reason="recount")
    pause(key="s*:7")
    pause(key="stock:8*")
    pause(key="stock:7")
    job_id = make_job(concurrency_key="stock:7")
    others = [
        "  key s*:7 still holds it: paused",
        "  key stock:* still holds it: paused by anna: recount",
    ]
    assert run("resume", "--key", "stock:7").splitlines() == ["key stock:7: resumed", *others]
    assert run("resume", "--key", "stock:7").splitlines() == [
        "key stock:7: was not paused",
        *others,
    ]
    assert "[key_paused]" in run("explain", job_id)
    resume(key="s*:7")
    assert run("resume", "--key", "stock:*") == "key stock:*: resumed\n"
    assert "[key_paused]" not in run("explain", job_id)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [("a.c:*", "abc:1"), ("*:7", "a:77"), ("shop_*", "shop:1"), ("100%*", "1000"), ("a*b*", "ba")],
)
def test_a_pattern_that_is_no_pause_of_the_key_is_not_named(
    run: Any, pattern: str, key: str
) -> None:
    pause(key=pattern)
    job_id = make_job(concurrency_key=key)
    assert run("resume", "--key", key) == f"key {key}: was not paused\n"
    assert "[key_paused]" not in run("explain", job_id)


def test_a_pause_whose_end_is_over_holds_nothing(run: Any) -> None:
    pause(key="stock:*")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_pause SET resume_at = now() - interval '1 s'")
    assert run("resume", "--key", "stock:7") == "key stock:7: was not paused\n"


@pytest.mark.slow
def test_of_a_pause_only_what_is_known_is_told(run: Any) -> None:
    pause(queue="mail")
    said = run("pause", "--queue", "mail", "--by", "anna").splitlines()
    assert said == ["queue mail: paused", "  before: paused"]
    said = run("pause", "--queue", "mail", "--reason", "PDF bug").splitlines()
    assert said == ["queue mail: paused", "  before: paused by anna"]
    assert run("pause", "--queue", "mail").splitlines()[1] == "  before: paused: PDF bug"
    make_schedule("hourly")
    run("schedules", "pause", "hourly")
    assert run("schedules", "list").splitlines()[-1] == "hourly: paused"


def test_who_gives_an_end_that_is_over_is_told_the_command_that_ends_a_pause() -> None:
    with pytest.raises(CommandError, match=r"--until expected .*`jobs resume` ends a pause\."):
        call_command("jobs", "pause", "--queue", "mail", "--until", "2020-01-01T00:00Z")
    assert not Pause.objects.exists()
