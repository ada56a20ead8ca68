"""What people come to the admin for, done in a browser with a mouse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from psycopg import sql

from django_pgjobs.control import pauses
from django_pgjobs.models import Pause, RateLimit
from django_pgjobs.testing import run_jobs
from tests.browser.pages import named
from tests.factories import (
    count_jobs,
    get_job,
    get_worker,
    make_job,
    make_jobs,
    make_running_job,
    make_worker,
)
from tests.test_admin import NOW

pytestmark = pytest.mark.django_db(transaction=True)

OpenWindow = Callable[..., Any]
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/billing/tasks.py", line 41, in send_invoice
    client.post(invoice.url)
builtins.TimeoutError: Read timed out after 30 s
"""
ERROR = {
    "attempt": 1,
    "exception_class": "builtins.TimeoutError",
    "message": "Read timed out after 30 s",
    "traceback": TRACEBACK,
}


def follow(window: Any, text: str, *, exact: bool = False) -> None:
    """Click the link with that text in the page's own part."""
    window.locator("main").get_by_role("link", name=text, exact=exact).first.click()


def press(window: Any, text: str) -> None:
    """Press the button with that text in the page's own part."""
    window.locator("main").get_by_role("button", name=text).first.click()


def wait_for(window: Any, text: str | re.Pattern[str]) -> None:
    """Wait until the page's own part says that."""
    window.locator("main").get_by_text(text).first.wait_for()


def test_a_failed_job_is_found_and_understood(open_window: OpenWindow) -> None:
    job_id = make_job(
        "billing.tasks.send_invoice",
        status="failed",
        kwargs={"invoice": 7, "api_token": "s3cret-value"},
        attempts=1,
        errors=[ERROR],
        finished_at=NOW,
    )
    window = open_window()
    window.goto(named("app_list", "pgjobs"))
    follow(window, "Failures", exact=True)
    wait_for(window, "TimeoutError")
    follow(window, "Open")
    follow(window, "billing.tasks.send_invoice")
    assert named("pgjobs_job_change", job_id) in window.url
    for text in ("Failed", "Read timed out after 30 s", "line 41, in send_invoice", '"invoice"'):
        wait_for(window, text)
    assert "s3cret-value" not in window.content()
    follow(window, "Show masked values")
    wait_for(window, "s3cret-value")


def test_ten_thousand_failed_jobs_are_requeued(open_window: OpenWindow) -> None:
    """The queue is paused meanwhile: else what is requeued would run at once."""
    every_second = sql.SQL("now() - make_interval(secs => generate_series)")
    make_jobs(10_500, queue_name="mail", status="failed", errors=[ERROR], finished_at=every_second)
    make_job(queue_name="mail", status="failed", finished_at=NOW)
    pauses.pause(queue="mail")
    window = open_window()
    window.goto(named("pgjobs_job_failures"))
    wait_for(window, "The newest 5,000 failed jobs")
    follow(window, "Look through the newest")
    wait_for(window, "10,500")
    window.get_by_role("row", name="TimeoutError").get_by_role("link", name="Requeue all").click()
    wait_for(window, re.compile("10,500"))
    wait_for(window, "in the background")
    window.get_by_label("Reason").fill("their API is back")
    press(window, "Requeue")
    wait_for(window, "Waiting for a worker")
    wait_for(window, "no live worker serves it")
    assert run_jobs() == 1
    # The page refreshes itself.
    wait_for(window, "10,500 jobs requeued")
    wait_for(window, "their API is back")
    assert count_jobs(status="ready") == 10_500
    assert count_jobs(status="failed") == 1


def test_a_queue_is_paused_with_a_reason_and_resumed(open_window: OpenWindow) -> None:
    make_jobs(3, queue_name="reports")
    window = open_window()
    window.goto(named("pgjobs_queuesettings_changelist"))
    follow(window, "Pause reports")
    window.get_by_label("Reason").fill("the PDFs are empty")
    press(window, "Pause")
    wait_for(window, "Paused")
    wait_for(window, "the PDFs are empty")
    assert Pause.objects.get().paused_by == "admin"
    follow(window, "Resume reports")
    wait_for(window, "the PDFs are empty")
    press(window, "Yes, resume")
    wait_for(window, "Resumed: reports.")
    assert not Pause.objects.exists()


def test_a_limit_is_raised(open_window: OpenWindow) -> None:
    RateLimit.objects.create(name="shopify", count=40, period=1.0)
    window = open_window()
    window.goto(named("app_list", "pgjobs"))
    follow(window, "Limits", exact=True)
    wait_for(window, "40 in 1.0 s")
    follow(window, "shopify", exact=True)
    window.get_by_label("Count").fill("80")
    press(window, "Save")
    wait_for(window, "80 in 1.0 s")
    assert RateLimit.objects.get().count == 80


def test_a_running_job_is_cancelled(open_window: OpenWindow) -> None:
    job = make_running_job()
    window = open_window()
    window.goto(named("pgjobs_job_changelist"))
    window.locator(".pgjobs-tabs").get_by_role("link", name=re.compile("Running")).click()
    follow(window, "tests.tasks.add")
    press(window, "Cancel")
    wait_for(window, "asked to end")
    assert get_job(job.id).cancel_requested_at is not None


def test_selected_jobs_are_discarded(open_window: OpenWindow) -> None:
    wanted, other = make_jobs(2, status="failed", finished_at=NOW)
    window = open_window()
    window.goto(named("pgjobs_job_changelist", tab="failed"))
    window.locator(f"input.action-select[value='{wanted}']").check()
    window.locator("select[name=action]").select_option("discard")
    window.locator("button[name=index]").click()
    wait_for(window, "Discard")
    window.get_by_label("Reason").fill("a test order")
    press(window, "Discard")
    window.locator(".messagelist").get_by_text("1 job discarded").wait_for()
    assert get_job(wanted).status == "cancelled"
    assert get_job(other).status == "failed"


def test_a_copy_is_enqueued_with_other_arguments(open_window: OpenWindow) -> None:
    job_id = make_job(args=[1, 2], status="successful", finished_at=NOW)
    window = open_window()
    window.goto(named("pgjobs_job_change", job_id))
    follow(window, "Enqueue a copy")
    window.locator("[name=args]").fill("[1]")
    press(window, "Enqueue the copy")
    window.locator(".errorlist").first.wait_for()
    assert count_jobs() == 1
    window.locator("[name=args]").fill("[20, 22]")
    press(window, "Enqueue the copy")
    wait_for(window, "Ready")
    copy_id = int(re.findall(r"/job/(\d+)/", window.url)[0])
    assert copy_id != job_id
    assert get_job(copy_id).args == [20, 22]
    assert run_jobs() == 1
    assert get_job(copy_id).result == 42


def test_a_worker_is_quieted_and_stopped(open_window: OpenWindow) -> None:
    worker_id = make_worker("web-1:7")
    window = open_window()
    window.goto(named("pgjobs_worker_changelist"))
    window.get_by_role("row", name="web-1:7").get_by_role("button", name="Quiet").click()
    wait_for(window, "Asked to claim no new jobs")
    assert get_worker(worker_id).quiet_requested_at is not None
    window.get_by_role("row", name="web-1:7").get_by_role("button", name="Stop").click()
    wait_for(window, "finish what they run")
    press(window, "Yes, stop")
    wait_for(window, "Stopping")
    assert get_worker(worker_id).stop_requested_at is not None


def test_who_may_view_sees_the_same_and_no_button(open_window: OpenWindow) -> None:
    job = make_running_job(kwargs={"password": "hunter2"})
    window = open_window("viewer")
    window.goto(named("pgjobs_job_change", job.id))
    wait_for(window, "Running")
    assert "hunter2" not in window.content()
    assert window.locator("main").get_by_role("button", name="Cancel").count() == 0
    assert window.locator("main").get_by_role("link", name="copy").count() == 0
