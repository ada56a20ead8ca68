"""A workflow in the browser: what failed is run again, the rest is cancelled, and it is deleted."""

from __future__ import annotations

import pytest

from django_pgjobs import workflow
from django_pgjobs.models import Batch, Job
from django_pgjobs.testing import run_jobs
from tests import tasks
from tests.browser.pages import named
from tests.browser.test_journeys import OpenWindow, follow, press, wait_for

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_workflow_is_watched_retried_cancelled_and_deleted(open_window: OpenWindow) -> None:
    with workflow("payroll", dedupe_key="2026-11") as pay:
        pay.each(tasks.add.s(1))
        pay.add(tasks.add.s(1, 1), tasks.fail_once.s())
    run_jobs()
    window = open_window()
    window.goto(named("pgjobs_batch_changelist"))
    wait_for(window, "3 of 3 jobs")
    window.get_by_label("Search", exact=True).fill("key:2026-11")
    press(window, "Search")
    follow(window, "payroll")
    # To the job that failed, and back by its page.
    window.locator(".pgjobs-tree a.pgjobs-bad").click()
    follow(window, "tests.tasks.fail_once")
    follow(window, f"payroll #{pay.pk}")
    follow(window, "Retry failed part…")
    wait_for(window, "1 job.")
    press(window, "Requeue")
    wait_for(window, "1 job requeued")
    wait_for(window, "Why does it not end?")
    wait_for(window, "1 job of it waits.")
    follow(window, "Cancel the rest…")
    window.get_by_label("Reason").fill("wrong month")
    press(window, "Cancel the rest")
    wait_for(window, "The rest is being cancelled.")
    run_jobs()
    wait_for(window, "Cancelled")
    window.reload()
    follow(window, "History")
    wait_for(window, "wrong month")
    window.goto(named("pgjobs_batch_change", pay.pk))
    follow(window, "Delete…")
    press(window, "Delete")
    wait_for(window, "3 jobs deleted")
    assert not Batch.objects.exists()
    assert not Job.objects.exists()
