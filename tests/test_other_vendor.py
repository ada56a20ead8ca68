"""Jobs that are routed to a database that is not PostgreSQL, where no check has said so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connections
from django.db.models import F
from django.test import override_settings
from django.urls import reverse

from django_pgjobs import acquire, cancel, chain, checks, pause, requeue, resume, workflow
from django_pgjobs.schedules.control import run_now
from django_pgjobs.testing import run_jobs
from tests.aliases import JobsTo
from tests.models import Effect
from tests.people import make_admin, open_client
from tests.tasks import add

pytestmark = pytest.mark.django_db

SAID = (
    r"^the jobs are in the database 'lite', which is sqlite and not PostgreSQL\. Set ENGINE to "
    r"'django\.db\.backends\.postgresql', or route the app 'pgjobs' to a PostgreSQL database\.$"
)


@pytest.fixture(autouse=True)
def lite(tmp_path: Path) -> Iterator[None]:
    """Route the jobs to SQLite; nothing may open it."""
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": tmp_path / "db", "OPTIONS": {}}
    connections.settings["lite"] = {**connections.settings["default"], **sqlite}
    try:
        with override_settings(DATABASE_ROUTERS=[JobsTo("lite")]):
            yield
        assert connections["lite"].connection is None
    finally:
        del connections["lite"], connections.settings["lite"]


def open_workflow() -> None:
    """Open one, and add to it."""
    with workflow("sums") as sums:
        sums.add(add.s(1, 2))


CALLS: dict[str, Callable[[], object]] = {
    "enqueue": lambda: add.enqueue(1, 2),
    "enqueue many": lambda: add.enqueue_many([(1, 2)]),
    "enqueue from": lambda: add.enqueue_from(Effect.objects.all(), a=F("pk"), b=2),
    "enqueue unique": lambda: add.using(unique_key="x").enqueue(1, 2),
    "enqueue after": lambda: add.using(after=[1]).enqueue(1, 2),
    "result": lambda: add.get_result("1"),
    "cancel": lambda: cancel(1),
    "requeue": lambda: requeue(1),
    "pause": lambda: pause(queue="mail"),
    "resume": lambda: resume(queue="mail"),
    "acquire": lambda: acquire("shopify"),
    "workflow": open_workflow,
    "chain": lambda: chain(add.s(1, 2)),
    "run_jobs": run_jobs,
    "run_now": lambda: run_now("nightly"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_names_the_database_and_what_is_needed(name: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=SAID):
        CALLS[name]()


@pytest.mark.parametrize("model", ["job", "batch", "schedule", "ratelimit", "worker"])
def test_a_page_of_the_admin_says_so(model: str) -> None:
    client = open_client(make_admin())
    with pytest.raises(ImproperlyConfigured, match=SAID):
        client.get(reverse(f"admin:pgjobs_{model}_changelist"))


def test_the_start_page_of_the_admin_is_still_there() -> None:
    assert open_client(make_admin()).get(reverse("admin:index")).status_code == 200


def test_a_worker_does_not_start() -> None:
    with pytest.raises(CommandError, match=SAID):
        call_command("runjobs", drain=True)


def test_the_check_says_the_same() -> None:
    [message] = checks.check_vendor()
    assert message.id == "pgjobs.E003"
    assert f"{message.msg} {message.hint}" == SAID.strip("^$").replace("\\", "")
    assert checks.check_rate_limits(databases=["lite"]) == []
