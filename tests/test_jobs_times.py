"""`manage.py jobs reschedule` and `requeue`: the time that was asked for, in words and in rows."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone, translation
from psycopg import sql

from tests import tasks
from tests.factories import get_job, make_job, make_jobs
from tests.test_jobs_changes import make_failed
from tests.test_jobs_command import status_of

pytestmark = pytest.mark.django_db

FAR = "2036-12-24T18:00Z"
# Kathmandu, the TIME_ZONE of the tests.
AT_FAR = r"2036-12-24 23:45:00\+05:45 \(in [0-9]+ d\)"
IN_2_HOURS = r"20[-0-9]{8} [:0-9]{8}\+05:45 \(in 2 h\)"


def is_far(job_id: int) -> bool:
    """Is the job to run when the tests say so?"""
    return bool(get_job(job_id).run_after.isoformat() == "2036-12-24T18:00:00+00:00")


@pytest.mark.slow
def test_jobs_are_rescheduled_by_ids_or_filters(run: Any) -> None:
    later, other = make_jobs(2, run_after=sql.SQL("now() + interval '1 day'"))
    assert run("reschedule", later, "--now") == f"job {later}: rescheduled to now\n"
    assert get_job(later).run_after is None
    given = ("reschedule", "--task", "tests.tasks.add", "--in", "2h")
    would = rf"would reschedule 2 jobs to {IN_2_HOURS}: {later}, {other}\n"
    assert re.fullmatch(would, run(*given, "--dry-run"))
    assert re.fullmatch(rf"2 jobs rescheduled to {IN_2_HOURS}\.\n", run(*given, "--yes"))
    for each in (later, other):
        left = get_job(each).run_after - timezone.now()
        assert timedelta(hours=1, minutes=59) < left <= timedelta(hours=2)
    said = run("reschedule", other, "--at", FAR)
    assert re.fullmatch(rf"job {other}: rescheduled to {AT_FAR}\n", said)
    assert is_far(other)
    said = run("reschedule", "--queue", "default", "--now", "--yes")
    assert said == "2 jobs rescheduled to now.\n"


def test_requeued_jobs_may_run_later(run: Any) -> None:
    first, second = make_failed(), make_failed()
    said = run("requeue", first, "--in", "2h")
    assert re.fullmatch(rf"job {first}: requeued for {IN_2_HOURS}\n", said)
    assert get_job(first).run_after > timezone.now() + timedelta(minutes=119)
    given = ("requeue", "--queue", "default", "--at", FAR)
    assert re.fullmatch(rf"would requeue 1 job for {AT_FAR}: {second}\n", run(*given, "--dry-run"))
    assert re.fullmatch(rf"1 job requeued for {AT_FAR}\.\n", run(*given, "--yes"))
    assert is_far(second)


def test_who_is_asked_sees_the_time(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or "y")
    job_id = make_job()
    with translation.override("de"):
        run("reschedule", "--queue", "default", "--at", FAR)
        run("reschedule", "--queue", "default", "--now")
    assert re.fullmatch(rf"Reschedule 1 job to {AT_FAR}: {job_id}\? \[y/N\] ", asked[0])
    assert asked[1] == f"Reschedule 1 job to now: {job_id}? [y/N] "


@pytest.mark.parametrize("action", ["reschedule", "requeue"])
def test_a_time_that_is_over_is_refused_with_what_to_write(action: str) -> None:
    job_id = make_job() if action == "reschedule" else make_failed()
    for which in (["--queue", "default", "--yes"], [str(job_id)]):
        with pytest.raises(CommandError, match=r"--at .* future, got 2020.* Write --now to let"):
            call_command("jobs", action, *which, "--at", "2020-01-01T00:00Z")
    assert get_job(job_id).run_after is None


def test_a_time_that_no_calendar_has_is_refused() -> None:
    assert status_of("reschedule", make_job(), "--in", "999999999d") == 2


def test_a_job_that_waits_for_others_is_said_to_do_so_still(run: Any) -> None:
    first = tasks.add.enqueue(1, 1)
    second = tasks.add.using(after=[first]).enqueue(2, 2)
    held = make_job(hold="predecessor failed")
    assert run("reschedule", second.id, held, "--now").splitlines() == [
        f"job {second.id}: rescheduled to now, but it still waits for other jobs",
        f"job {held}: rescheduled to now",  # that is the decision it waited for
    ]


def test_what_keeps_a_job_from_being_changed_names_it_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = make_failed(unique_key="k")
    live = make_job(unique_key="k")
    assert status_of("requeue", failed) == 1
    said = f"job {failed}: cannot be requeued: job {live} holds its unique key. "
    assert capsys.readouterr().out.startswith(said)
