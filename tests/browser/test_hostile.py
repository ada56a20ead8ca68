"""Hostile text in every column is text on every page: no script of it runs, no element appears."""

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
)
from tests.admin.demo_data import make_users
from tests.browser.conftest import Installation, cookies
from tests.browser.pages import PAGES
from tests.factories import make_batch, make_job, make_running_job, make_token, make_worker
from tests.test_admin import HOSTILE, NOW, ROWS

pytestmark = pytest.mark.django_db

# Each is left out by something that only thinks of the others.
CORPUS = [
    HOSTILE,
    '"><svg onload=alert(3)>',
    "'-alert(4)-'",
    "javascript:alert(5)",
    "</script><script>alert(6)</script>",
    "</textarea></title></style><img src=x onerror=alert(7)>",
    "<a href=javascript:alert(8) autofocus onfocus=alert(9)>x</a>",
    "{% include 'x' %}{{ request }}",
    "<iframe srcdoc='<script>parent.alert(10)</script>'>",
]
INJECTED = (
    "main script:not([src^='/static/']), main iframe, main svg[onload], main img[src=x],"
    " main [onerror], main [onload],"
    " main [onfocus], main [autofocus], main a[href^='javascript:']"
)


def hostile_columns(text: str) -> dict[str, Any]:
    """Return the columns of a failed job, with *text* wherever text goes."""
    error = {"exception_class": text, "message": text, "traceback": text}
    return ROWS["hostile"] | {
        "task_path": text,
        "queue_name": text,
        "backend": text,
        "args": [text, {text: text}],
        "kwargs": {text: [text]},
        "metadata": {text: text},
        "tags": [text],
        "worker_ids": [text],
        "correlation_id": text,
        "note": text,
        "result": text,
        "progress": {"message": text},
        "errors": [error],
        "unique_key": text,
        "subject": text,
    }


def fill_with_malice() -> None:
    """Make rows of all kinds."""
    make_users()
    for text in CORPUS:
        columns = hostile_columns(text)
        for status in ("successful", "cancelled", "failed"):
            make_job(**columns | {"status": status, "unique_key": None, "finished_at": NOW})
        make_job(**columns | {"status": "ready", "concurrency_key": text, "rate_limit_keys": text})
        batch = make_batch(
            text, dedupe_key=text, broken=text, metadata={text: text}, sealed_at=None,
            callbacks=[{"event": text, "task_path": text}],
        )  # fmt: skip
        make_batch(text, parent_id=batch)
        make_job(**columns | {"status": "failed", "unique_key": None, "finished_at": NOW,
                              "batch_id": batch})  # fmt: skip
        worker = make_worker(text, host=text, version=text, queues=[text], task_paths=[text])
        lost = {"ended_at": NOW, "lost": True}
        make_worker(text, host=text, version=text, queues=[text], task_paths=[text], **lost)
        make_running_job(
            worker, **columns | {"status": "running", "unique_key": None, "result": None}
        )
        for kind in ("queue", "task", "key"):
            Pause.objects.create(kind=kind, name=text, reason=text, paused_by=text)
        QueueSettings.objects.create(queue_name=text, max_running=1, note=text)
        ConcurrencyLimit.objects.create(pattern=text, max_running=1, note=text)
        RateLimit.objects.create(name=text, count=1, period=1.0, note=text)
        Schedule.objects.create(
            name=text,
            task_path=text,
            args=[text],
            kwargs={text: text},
            every=3600.0,
            timezone=text,
            error=text,
            paused_at=timezone.now(),
            paused_by=text,
            pause_reason=text,
        )
        make_token(text[:200] or "n", prefix=text, queues=[text], tasks=[text], created_by=text)
        BulkChange.objects.create(
            verb=text,
            user_id=text,
            reason=text,
            error=text,
            selection=Selection({}).pinned().to_json(),
            total=1,
        )


@pytest.fixture(scope="module")
def installation(
    browser: Any, site: LiveServer, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Installation]:
    """An installation in which somebody wrote hostile text into every column."""
    with django_db_blocker.unblock():
        try:
            fill_with_malice()
            yield Installation(cookies(site), {name: make() for name, make in PAGES.items()})
        finally:
            call_command("flush", verbosity=0, interactive=False)


@pytest.mark.parametrize("name", PAGES)
def test_hostile_text_stays_text(
    installation: Installation, open_window: Callable[..., Any], name: str
) -> None:
    """A dialog, or a script that the policy stopped, is noted by the window."""
    window = open_window()
    response = window.goto(installation.addresses[name])
    assert response.status < 500
    found = window.locator(INJECTED).evaluate_all("all => all.map(each => each.outerHTML)")
    assert found == []
