"""`manage.py jobs show` and `workflows show`: who or what cancelled it, when and why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection

from django_pgjobs.admin.audit import record
from django_pgjobs.management import history
from django_pgjobs.models import Batch, Job
from tests.factories import make_batch, make_job
from tests.test_admin import NOW

pytestmark = pytest.mark.django_db


def tell_of_cancel(about: Batch | Job, reason: str) -> None:
    """Write down, as the pages do, that ann cancelled a batch or a job."""
    ann, _ = User.objects.get_or_create(username="ann")
    record(ann, "cancel", obj=about, count=5, reason=reason)


def below(head: str, text: str) -> list[str]:
    """Return the lines behind one that begins so."""
    lines = text.splitlines()
    return lines[next(i for i, line in enumerate(lines) if line.startswith(head)) + 1 :]


def test_who_cancelled_a_workflow_is_told_with_when_and_why(run: Any) -> None:
    root = make_batch("payroll", cancel_requested_at=NOW)
    tell_of_cancel(Batch.objects.get(pk=root), "wrong\nprices")
    text = run("workflows", "show", root)
    assert "\ncancelled since " in text
    [line] = below("history", text)
    assert line.startswith("  20")
    assert line.endswith("  ann  cancel: 5 jobs: wrong\\x0aprices")
    told = json.loads(run("workflows", "show", root, "--json"))
    assert told["cancel_requested_at"]
    [entry] = told["history"]
    assert (entry["by"], entry["text"]) == ("ann", "cancel: 5 jobs: wrong\nprices")
    assert entry["at"]


def test_a_batch_names_the_one_above_it_that_was_cancelled_and_who_did_that(run: Any) -> None:
    root = make_batch("payroll", cancel_requested_at=NOW)
    part = make_batch("part", parent_id=root, cancel_requested_at=NOW)
    tell_of_cancel(Batch.objects.get(pk=root), "wrong prices")
    text = run("workflows", "show", part)
    assert f", with batch {root} above it" in text
    assert below(f"history of batch {root}", text)[0].endswith("ann  cancel: 5 jobs: wrong prices")
    told = json.loads(run("workflows", "show", part, "--json"))
    assert (told["cancelled_with"], told["history"][0]["batch_id"]) == (root, root)


@pytest.mark.parametrize(
    ("policy", "fails_at", "is_told"),
    [
        ("cancel workflow", "part", True),
        ("cancel workflow", "root", True),
        ("cancel branch", "root", True),
        ("cancel branch", "part", False),
        ("continue", "root", False),
    ],
)
def test_failed_jobs_that_cancel_a_workflow_are_told(
    run: Any, policy: str, fails_at: str, is_told: bool
) -> None:
    root = make_batch("payroll", cancel_requested_at=NOW, on_failed_job=policy)
    part = make_batch("part", parent_id=root, on_failed_job=policy)
    failing = {"root": root, "part": part}[fails_at]
    Batch.objects.filter(pk=failing).update(failed=2)
    text = run("workflows", "show", root)
    assert (f"; jobs failed in {failing}, whose on_failed_job cancels it." in text) == is_told
    told = json.loads(run("workflows", "show", root, "--json"))
    assert told["failed_batches"] == ([failing] if is_told else [])


def test_a_cancel_that_nobody_wrote_down_is_told_as_such(run: Any) -> None:
    root = make_batch("payroll", cancel_requested_at=NOW)
    last = run("workflows", "show", root).splitlines()[-1]
    assert last.endswith("; by whom nobody has written down, as the admin does.")


def test_a_log_that_takes_too_long_is_told(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    root, job_id = make_batch(cancel_requested_at=NOW), make_job()
    monkeypatch.setattr(history, "HISTORY_SECONDS", 0.1)
    slow = LogEntry.objects.extra(where=["pg_sleep(10) IS NOT NULL"])
    monkeypatch.setattr(LogEntry, "objects", slow)
    tell_of_cancel(Job.objects.get(pk=job_id), "sent twice")
    tell_of_cancel(Batch.objects.get(pk=root), "sent twice")
    assert run("show", job_id).endswith("the history could not be found in time.\n")
    assert json.loads(run("show", job_id, "--json"))["history"] is None
    text = run("workflows", "show", root)
    assert text.endswith(f"the history of batch {root} could not be found in time.\n")
    assert "nobody has written" not in text
    assert json.loads(run("workflows", "show", root, "--json"))["history"] is None


def test_nothing_is_told_of_a_workflow_that_nobody_cancelled(run: Any) -> None:
    root = make_batch("payroll", failed=1, on_failed_job="cancel workflow")
    text = run("workflows", "show", root)
    assert "cancelled since" not in text
    assert "history" not in text
    told = json.loads(run("workflows", "show", root, "--json"))
    assert (told["cancel_requested_at"], told["cancelled_with"], told["history"]) == (
        None,
        None,
        [],
    )
    assert told["failed_batches"] == []


def test_who_cancelled_a_job_is_told(run: Any) -> None:
    job_id = make_job(status="cancelled", finished_at=NOW, cancel_requested_at=NOW)
    tell_of_cancel(Job.objects.get(pk=job_id), "sent twice")
    text = run("show", job_id)
    assert below("history", text)[0].endswith("  ann  cancel: sent twice")
    [entry] = json.loads(run("show", job_id, "--json"))["history"]
    assert (entry["by"], entry["text"]) == ("ann", "cancel: sent twice")


def test_a_job_that_ended_with_its_batch_says_where_to_look(run: Any) -> None:
    root = make_batch("payroll", cancel_requested_at=NOW)
    job_id = make_job(
        status="cancelled", finished_at=NOW, batch_id=root, note="cancelled: with its batch"
    )
    assert run("show", job_id).splitlines()[-1] == (
        f"its batch is cancelled: see `jobs workflows show {root}`."
    )


def test_a_log_that_is_not_there_or_not_for_us_is_no_history(run: Any) -> None:
    job_id = make_job()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_admin_log RENAME TO elsewhere")
    assert run("show", job_id).startswith(f"job {job_id}: ")
    assert json.loads(run("show", job_id, "--json"))["history"] == []


def test_a_project_without_the_admin_has_no_history(run: Any, settings: Any) -> None:
    job_id = make_job()
    settings.INSTALLED_APPS = [
        name for name in settings.INSTALLED_APPS if name != "django.contrib.admin"
    ]
    assert json.loads(run("show", job_id, "--json"))["history"] == []
