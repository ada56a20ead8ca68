"""What people do is written down: the admin's log, a line, a signal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import User
from django.test import Client

from django_pgjobs.admin.audit import record, record_jobs
from django_pgjobs.models import BulkChange, Job
from django_pgjobs.signals import admin_action_performed
from tests.factories import make_job, make_jobs
from tests.test_admin import HOSTILE, page

pytestmark = pytest.mark.django_db


@pytest.fixture
def boss() -> User:
    """Somebody."""
    return User.objects.create_superuser("boss")


@pytest.fixture
def heard() -> Iterator[list[dict[str, Any]]]:
    """What the signal said, one dict per sending."""
    said: list[dict[str, Any]] = []

    def hear(sender: Any, **kwargs: Any) -> None:
        said.append({"sender": sender, **kwargs})

    admin_action_performed.connect(hear)
    yield said
    admin_action_performed.disconnect(hear)


def test_an_action_on_a_job_is_in_its_history(boss: User, admin_client: Client) -> None:
    job = Job.objects.get(pk=make_job())
    record(boss, "run_now", job=job, reason="the customer waits")
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.action_flag) == (boss, str(job.pk), CHANGE)
    assert entry.object_repr == str(job)
    assert entry.get_change_message() == "run now: the customer waits"
    response = admin_client.get(page("job", "history", job.pk))
    assert "the customer waits" in response.content.decode()


def test_an_action_without_a_row_names_its_target(boss: User, admin_client: Client) -> None:
    record(boss, "pause", target="queue mail", reason=HOSTILE)
    entry = LogEntry.objects.get()
    assert (entry.object_id, entry.object_repr) == ("", "queue mail")
    assert entry.get_admin_url() is None
    admin_client.force_login(boss)
    text = admin_client.get("/admin/").content.decode()
    assert "queue mail" in text
    assert "<script>alert" not in text


def test_a_bulk_change_is_recorded_with_its_number(boss: User) -> None:
    change = BulkChange.objects.create(verb="delete")
    record(boss, "delete", obj=change, count=1234, reason="old")
    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.action_flag) == (str(change), DELETION)
    assert entry.get_change_message() == "delete: 1234 jobs: old"


def test_the_signal_says_what_was_done(boss: User, heard: list[dict[str, Any]]) -> None:
    record(
        boss,
        "requeue",
        count=3,
        selection={"status": "failed"},
        reason="again",
        site=admin.site,
    )
    [said] = heard
    assert (said["sender"], said["user"], said["action"]) == (Job, boss, "requeue")
    assert (said["count"], said["selection"]) == (3, {"status": "failed"})
    assert (said["reason"], said["site"]) == ("again", admin.site)


def test_a_receiver_that_raises_changes_nothing(boss: User) -> None:
    def fail(**kwargs: Any) -> None:
        raise RuntimeError("on purpose")

    admin_action_performed.connect(fail)
    try:
        record(boss, "requeue", target="x")
    finally:
        admin_action_performed.disconnect(fail)
    assert LogEntry.objects.count() == 1


def test_the_line_in_the_log_is_one_line(boss: User, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "django_pgjobs.admin"):
        record(boss, "cancel", target="x\ny", count=2, reason="a\nINFO forged")
    [line] = caplog.records
    assert "\n" not in line.getMessage()
    assert "action='cancel' user='boss'" in line.getMessage()
    assert line.pgjobs["count"] == 2  # type: ignore[attr-defined]


def test_of_many_jobs_the_first_hundred_have_an_entry(boss: User) -> None:
    ids = make_jobs(120)
    record_jobs(boss, "requeue", ids, reason="why")
    entries = LogEntry.objects.all()
    assert {entry.object_id for entry in entries} == {str(job_id) for job_id in ids[:100]}
    assert entries[0].object_repr.startswith("tests.tasks.add #")


def test_jobs_that_are_deleted_have_an_entry_too(boss: User) -> None:
    record_jobs(boss, "delete", [12])
    assert LogEntry.objects.get().object_repr == "deleted job #12"


def test_a_long_name_is_cut(boss: User) -> None:
    record(boss, "requeue", job=Job.objects.get(pk=make_job("x" * 500)))
    assert len(LogEntry.objects.get().object_repr) == 200
