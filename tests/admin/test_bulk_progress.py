"""The page of a large bulk change: how far it is, cancelling it, going on with it."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from django_pgjobs.admin.bulk import asking
from django_pgjobs.bulk.job import enqueue_change
from django_pgjobs.models import BulkChange, Job
from django_pgjobs.testing import run_jobs
from tests.admin.bulk_support import FAILED, address, confirm, log_in, text_of
from tests.factories import count_jobs, get_job, make_job, make_jobs, make_worker
from tests.test_admin import HOSTILE, NOW, page

pytestmark = pytest.mark.django_db


def test_a_large_change_is_left_to_a_worker(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "INLINE_JOBS", 5)
    make_jobs(9, status="failed", finished_at=NOW)
    response = confirm(admin_client, address("requeue", FAILED), reason="after the outage")
    change = BulkChange.objects.get()
    progress = page("job", "bulk_progress", change.pk)
    assert response["Location"] == progress
    text = text_of(admin_client, progress)
    for part in ("Waiting for a worker", "no live worker serves it", "after the outage", "admin"):
        assert part in text
    make_worker()
    assert "no live worker serves it" not in text_of(admin_client, progress)
    run_jobs()
    text = text_of(admin_client, progress)
    assert "Done" in text
    assert "9 jobs requeued." in text
    assert 'name="cancel"' not in admin_client.get(progress).content.decode()
    assert "after the outage" in text_of(admin_client, page("job", "bulk"))


def open_change(user: User) -> BulkChange:
    """Return a change that a job waits to do."""
    make_jobs(3, status="failed", finished_at=NOW)
    change = BulkChange.objects.create(
        verb="requeue", user_id=str(user.pk), selection=FAILED.pinned().to_json(), total=3
    )
    enqueue_change(change)
    return change


def test_a_change_can_be_cancelled(admin_client: Client, admin_user: User) -> None:
    change = open_change(admin_user)
    progress = page("job", "bulk_progress", change.pk)
    assert 'name="cancel"' in admin_client.get(progress).content.decode()
    assert admin_client.post(progress, {"cancel": "1"}).status_code == 302
    assert "Cancelled" in text_of(admin_client, progress)
    assert get_job(change.job_id).status == "cancelled"
    run_jobs()
    assert count_jobs(status="failed") == 3


def test_an_interrupted_change_can_be_continued(admin_client: Client, admin_user: User) -> None:
    change = open_change(admin_user)
    first = change.job_id
    Job.objects.get(pk=first).cancel()
    progress = page("job", "bulk_progress", change.pk)
    assert "Interrupted" in text_of(admin_client, progress)
    admin_client.post(progress, {"continue": "1"})
    change.refresh_from_db()
    assert change.job_id != first
    run_jobs()
    assert "3 jobs requeued." in text_of(admin_client, progress)


def test_who_may_only_view_cannot_touch_a_change(admin_user: User) -> None:
    change = open_change(admin_user)
    client = log_in("view_job")
    progress = page("job", "bulk_progress", change.pk)
    text = client.get(progress).content.decode()
    assert "<form" not in text.partition('id="content-main"')[2]
    for name in ("cancel", "continue"):
        assert client.post(progress, {name: "1"}).status_code == 403
    change.refresh_from_db()
    assert change.finished_at is None


def test_a_change_that_the_database_interrupts_can_be_continued(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_job(status="failed", finished_at=NOW)

    def fail(change_id: int) -> None:
        raise DatabaseError("gone")

    monkeypatch.setattr(asking, "run_change", fail)
    response = confirm(admin_client, address("requeue", FAILED))
    change = BulkChange.objects.get()
    assert response["Location"] == page("job", "bulk_progress", change.pk)
    text = admin_client.get(response["Location"]).content.decode()
    assert 'name="continue"' in text
    assert "It was interrupted" in text


def test_odd_changes_are_shown(admin_client: Client) -> None:
    BulkChange.objects.create(verb=HOSTILE, reason=HOSTILE, user_id=HOSTILE, error=HOSTILE)
    change = BulkChange.objects.create(verb="requeue", user_id="17", job_id=10**12, total=0)
    assert admin_client.get(page("job", "bulk_progress", 10**12)).status_code == 404
    for row in BulkChange.objects.all():
        text = admin_client.get(page("job", "bulk_progress", row.pk)).content.decode()
        assert "<script>alert" not in text
    text = admin_client.get(page("job", "bulk")).content.decode()
    assert "<script>alert" not in text
    assert f"Requeue #{change.pk}" in text


def test_the_progress_page_stays_within_its_budget(admin_user: User) -> None:
    client = log_in("view_job", "operate_job")
    change = open_change(admin_user)
    for where in (page("job", "bulk_progress", change.pk), page("job", "bulk")):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(where).status_code == 200
        assert len(queries) <= 12, [query["sql"][:80] for query in queries]
