"""`manage.py jobs doctor`: what is wrong now, for a terminal and for monitoring."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.utils import timezone, translation

from django_pgjobs import checks, pause
from django_pgjobs.models import Mute, RateLimit
from django_pgjobs.queries.database import job_cursor
from tests.admin.warning_support import no_dead_rows
from tests.factories import ago, make_job, make_jobs, make_running_job, make_worker

__all__ = ["no_dead_rows"]

pytestmark = pytest.mark.django_db

UNSERVED = "2 jobs wait in queue reports and no live worker serves it."


@pytest.fixture(autouse=True)
def _without_the_limits_of_test_tasks(settings: Any) -> None:
    """Whichever of them were loaded: the rows of their limits are not made."""
    settings.SILENCED_SYSTEM_CHECKS = ["pgjobs.W005"]


@pytest.fixture
def run(run: Callable[..., str]) -> Callable[..., str]:
    """Run `jobs doctor` with words of a command line; return what it prints."""
    return partial(run, "doctor")


def test_nothing_is_wrong(run: Any) -> None:
    make_running_job()
    assert run("--fail") == "nothing is wrong.\n"
    assert json.loads(run("--json")) == []


@pytest.mark.slow
def test_what_is_wrong_is_told_the_worst_first_and_in_english(run: Any) -> None:
    make_worker(queues=["mail"])
    make_jobs(2, queue_name="reports")
    pause(task="tests.tasks.add", by="ann", reason="PDF bug")
    with translation.override("de"):
        first, second = run().splitlines()
    assert first == f"WARNING {UNSERVED} [unserved reports]"
    assert second.startswith("WARNING The task tests.tasks.add has been paused since ")
    assert second.endswith(" by ann, because: PDF bug. [paused task:tests.tasks.add]")
    told = json.loads(run("--json"))
    assert [(each["kind"], each["subject"]) for each in told] == [
        ("unserved", "reports"),
        ("paused", "task:tests.tasks.add"),
    ]
    assert told[0] == {
        "kind": "unserved",
        "subject": "reports",
        "text": UNSERVED,
        "muted_until": None,
        "muted_by": None,
        "mute_reason": None,
    }


def test_monitoring_is_told_by_the_exit_status(
    run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make_worker(queues=["mail"])
    make_jobs(2, queue_name="reports")
    with pytest.raises(CommandError, match=r"^1 warning\.$") as caught:
        run("--fail")
    assert caught.value.returncode == 1
    assert capsys.readouterr().out == f"WARNING {UNSERVED} [unserved reports]\n"


@pytest.mark.slow
def test_what_is_muted_is_told_as_such(run: Any) -> None:
    make_worker(queues=["mail"])
    make_jobs(2, queue_name="reports")
    until = timezone.now() + timedelta(hours=1)
    Mute.objects.create(
        kind="unserved", subject="reports", reason="a new\nqueue", muted_by="ann", until=until
    )
    muted, end = run("--fail").splitlines()
    assert re.match(
        r"muted by ann until \w+\.? \d+, 20\d\d \S+ \S+ \(in 59 min\), because: a ", muted
    )
    assert muted.endswith(f"a new\\x0aqueue: {UNSERVED}")
    assert end == "nothing else is wrong."
    [told] = json.loads(run("--json"))
    assert (told["muted_by"], told["mute_reason"]) == ("ann", "a new\nqueue")
    Mute.objects.update(muted_by="")
    assert run("--fail").startswith("muted until ")


def test_a_limit_that_only_a_task_names_is_told_and_one_that_jobs_wait_for_once(
    run: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SILENCED_SYSTEM_CHECKS = []
    monkeypatch.setattr(checks, "named_limits", lambda: {"vans": 1, "boats": 1})
    make_worker()
    make_job(rate_limit_keys="boats:7")
    told = [text.partition(",")[0] for text in run().splitlines()]
    assert told == [
        "WARNING Jobs wait for the rate limit of boats:7",
        "WARNING a task names the rate limit 'vans'",
    ]


def test_what_waits_for_long_is_told_with_the_reason(run: Any) -> None:
    make_worker()
    RateLimit.objects.create(name="api", count=1, period=3_600.0)
    make_job(rate_limit_keys="api", enqueued_at=ago(700))
    with job_cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_rate_state (key, taken_at, taken_since, next_free)"
            " VALUES ('api', ARRAY[now()], ARRAY[1], now() + interval '1 hour')"
        )
    [line] = run().splitlines()
    assert re.match(
        r"WARNING Job \d+, the oldest of queue default, has waited for 11 min: The rate limit "
        r"“api” \(1 in 60 min\) is used up",
        line,
    )


def test_what_a_name_says_begins_no_line(run: Any) -> None:
    make_worker(queues=["mail"])
    make_jobs(1, queue_name="a\nWARNING b\x1b[31m")
    [line] = run().splitlines()
    assert "queue a\\x0aWARNING b\\x1b[31m and no" in line
