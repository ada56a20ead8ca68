"""Names are as long as their columns let them be and have no spaces: no page gets wider."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer
from pytest_django.plugin import DjangoDbBlocker

from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import (
    BulkChange,
    ConcurrencyLimit,
    Pause,
    QueueSettings,
    RateLimit,
    Schedule,
    Worker,
)
from tests.admin.demo_data import make_users
from tests.browser.conftest import Installation, cookies
from tests.browser.pages import PAGES
from tests.browser.windows import find_cut, find_widest, is_too_wide
from tests.factories import make_batch, make_job, make_running_job, make_token, make_worker
from tests.test_admin import NOW

pytestmark = pytest.mark.django_db

# As long as the columns take them.
QUEUE, UNSERVED, SCHEDULE = "q" * 128, "u" * 128, "s" * 128
TASK, KEY, WORKER, BATCH = "t" * 512, "k" * 512, "w" * 512, "b" * 512
LONG = "n" * 512


def fill_with_long_names() -> None:
    """Make rows of all kinds whose names are as long as can be."""
    make_users()
    error = {"exception_class": f"a.{LONG}", "message": LONG, "traceback": LONG}
    columns: dict[str, Any] = {
        "task_path": TASK, "queue_name": QUEUE, "args": [LONG], "kwargs": {LONG: 1},
        "tags": [LONG], "worker_ids": [WORKER], "note": LONG, "errors": [error],
        "subject": LONG[:200], "correlation_id": LONG[:256],
    }  # fmt: skip
    batch = make_batch(BATCH, dedupe_key=KEY, broken=LONG)
    make_batch(BATCH, parent_id=batch)
    for status in ("successful", "cancelled", "failed"):
        make_job(**columns, status=status, finished_at=NOW)
    make_job(**columns, status="failed", finished_at=NOW, batch_id=batch)
    make_job(**columns, concurrency_key=KEY, rate_limit_keys=KEY, unique_key=KEY)
    of_worker = {"host": LONG, "version": "1", "queues": [QUEUE], "task_paths": [TASK]}
    worker = make_worker(WORKER, **of_worker)
    make_worker(WORKER, **of_worker, ended_at=NOW, lost=True)
    make_running_job(worker, **columns, concurrency_key=KEY)
    for kind, name in (("queue", QUEUE), ("task", TASK), ("key", KEY)):
        Pause.objects.create(kind=kind, name=name, reason=LONG, paused_by=LONG)
    QueueSettings.objects.create(queue_name=QUEUE, max_running=1, note=LONG)
    ConcurrencyLimit.objects.create(pattern=KEY, max_running=1, note=LONG)
    RateLimit.objects.create(name=KEY, count=1, period=1.0, note=LONG)
    Schedule.objects.create(
        name=SCHEDULE,
        task_path=TASK,
        every=3600.0,
        error=LONG,
        paused_at=timezone.now(),
        paused_by=LONG,
        pause_reason=LONG,
    )
    make_token(LONG[:200], queues=[QUEUE], tasks=[TASK], created_by=LONG)
    BulkChange.objects.create(
        verb="requeue", user_id="1", reason=LONG, selection=Selection({}).pinned().to_json()
    )


@pytest.fixture(scope="module")
def installation(
    browser: Any, site: LiveServer, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Installation]:
    """An installation in which all names are long."""
    with django_db_blocker.unblock():
        try:
            fill_with_long_names()
            addresses = {name: make() for name, make in PAGES.items()}
            make_job(queue_name=UNSERVED)
            Worker.objects.filter(queues=None).update(queues=[QUEUE])
            addresses["queue"] = addresses["queue"].replace("billing", QUEUE)
            yield Installation(cookies(site), addresses)
        finally:
            call_command("flush", verbosity=0, interactive=False)


def test_a_warning_of_a_long_name_does_not_widen_the_page(
    installation: Installation, open_window: Callable[..., Any]
) -> None:
    window = open_window(width=1280)
    window.goto(installation.addresses["queues"])
    assert window.locator(".pgjobs-warning", has_text=UNSERVED).is_visible()
    assert not is_too_wide(window), find_widest(window)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_with_long_names_does_not_scroll_sideways(
    installation: Installation, open_window: Callable[..., Any], name: str
) -> None:
    window = open_window(width=1280)
    window.goto(installation.addresses[name])
    assert not is_too_wide(window), find_widest(window)
    assert find_cut(window) == []
    window.set_viewport_size({"width": 390, "height": 844})
    assert not is_too_wide(window), find_widest(window)
