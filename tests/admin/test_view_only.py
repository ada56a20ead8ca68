"""Who may only look changes nothing: every address and every action of the admin is tried."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, reverse

from django_pgjobs.admin.job_page.actions import JOB_ACTIONS
from django_pgjobs.bulk.actions import ACTIONS
from django_pgjobs.bulk.selection import Selection
from django_pgjobs.models import (
    BulkChange,
    ConcurrencyLimit,
    Pause,
    QueueSettings,
    RateLimit,
    Schedule,
    Token,
)
from django_pgjobs.status import JobStatus
from tests.admin.bulk_support import address as bulk_address
from tests.admin.bulk_support import token_of
from tests.admin.lists import LATER
from tests.factories import make_batch, make_job, make_running_job, make_token, make_worker
from tests.helpers import some_always
from tests.test_admin import NOW

pytestmark = pytest.mark.django_db

# What only looks: the search and the filters.
HARMLESS = re.compile(r'<form[^>]*(method="get"|id="changelist-search").*?</form>', re.DOTALL)
ACTING = re.compile(r'<button(?! type="button")|type="submit"|class="[^"]*(deletelink|addlink)')


def names_of(patterns: list[Any]) -> Iterator[str]:
    """Yield the names of all addresses of this package."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from names_of(pattern.url_patterns)
        elif isinstance(pattern, URLPattern) and (pattern.name or "").startswith("pgjobs_"):
            yield str(pattern.name)


NAMES = sorted(set(names_of(admin.site.urls[0])))
REFUSED = {302, 403, 404, 405}
# These answer a form as they answer a look: there is nothing that they could do.
ONLY_SHOWN = {name for name in NAMES if name.endswith("_history")} | {
    "pgjobs_job_bulk",
    "pgjobs_job_download",
    "pgjobs_job_failures",
    "pgjobs_job_overview",
    "pgjobs_job_stuck",
    "pgjobs_job_system",
    "pgjobs_queue",
    "pgjobs_schedule_page",
}


# How the names of addresses end that are about one row.
OF_ONE = (
    *("_change", "_delete", "_history", "_copy", "_download", "_cancel", "_seal", "_where"),
    *("_revoke", "_rotate"),
)


class Rows:
    """Rows of every kind, and the arguments of each address."""

    def __init__(self) -> None:
        self.jobs = {
            "ready": make_job(run_after=LATER),
            "running": make_running_job().id,
            **{
                status: make_job(status=status, finished_at=NOW)
                for status in ("successful", "failed", "cancelled")
            },
        }
        self.worker = make_worker("one")
        self.batch = make_batch("flow", jobs=3, failed=1, cancelled=1)
        self.open_batch = make_batch("open", sealed_at=None)
        Pause.objects.create(kind="queue", name="mail", reason="r", paused_by="p")
        QueueSettings.objects.create(queue_name="mail", max_running=1)
        ConcurrencyLimit.objects.create(pattern="shop:*", max_running=1)
        RateLimit.objects.create(name="api", count=1, period=1.0)
        Schedule.objects.create(name="nightly", task_path="tests.tasks.add", every=3600.0)
        make_token()
        self.change = BulkChange.objects.create(
            verb="cancel", user_id="1", selection=Selection({}).pinned().to_json(), total=1
        )

    def key_of(self, name: str) -> Any:
        """Return the key of the row that an address is about."""
        keys = {
            "job": self.jobs["failed"],
            "worker": self.worker,
            "batch": self.open_batch if name.endswith("_seal") else self.batch,
            "pause": Pause.objects.get().pk,
            "queuesettings": "mail",
            "concurrencylimit": "shop_3A_2A",
            "ratelimit": "api",
            "schedule": "nightly",
            "token": Token.objects.get().pk,
        }
        return keys[name.split("_")[1]]

    def addresses(self, name: str) -> list[str]:
        """Return the addresses that have this name."""
        if name == "pgjobs_job_do":
            return [
                reverse(f"admin:{name}", args=[job_id, action])
                for job_id in self.jobs.values()
                for action in JOB_ACTIONS
            ]
        if name == "pgjobs_job_bulk":
            return [bulk_address(verb, Selection({})) for verb in ACTIONS] + [
                reverse("admin:pgjobs_job_bulk")
            ]
        if name == "pgjobs_job_bulk_progress":
            return [reverse(f"admin:{name}", args=[self.change.pk])]
        if name == "pgjobs_queue":
            return [reverse(f"admin:{name}") + "?name=mail"]
        if name in ("pgjobs_schedule_page", "pgjobs_schedule_run", "pgjobs_schedule_backfill"):
            return [reverse(f"admin:{name}") + "?name=nightly"]
        if name.endswith(OF_ONE):
            return [reverse(f"admin:{name}", args=[self.key_of(name)])]
        return [reverse(f"admin:{name}")]


def posts(rows: Rows) -> list[dict[str, str]]:
    """Return forms that would do something, if somebody else sent them."""
    forms = [
        {},
        {"_save": "1", "post": "yes", "count": "9", "max_running": "9", "name": "api"},
        {"kind": "queue", "name": "mail", "reason": "x", "queue_name": "mail", "priority": "5"},
        {"key": "api", "cancel": "1", "continue": "1", "confirmed": "1", "reveal": "1"},
        {"name": "n", "verbs": "work", "keep": "3600"},
        {"at": "2030-01-01 00:00", "args": "[]", "kwargs": "{}", "confirmed": "1"},
    ]
    begin, end = "2026-01-01T00:00", "2026-01-01T05:00"
    forms += [
        {"do": verb, "name": "nightly", "begin": begin, "end": end}
        for verb in ("run", "skip", "pause", "resume", "follow")
    ]
    forms += [
        {"do": f"{verb} {whom}", "confirmed": "1"}
        for verb in ("quiet", "resume", "stop", "forget")
        for whom in ("all", str(rows.worker))
    ]
    return forms


def state() -> dict[str, Any]:
    """Return everything that is stored, and how often something was written down."""
    found: dict[str, Any] = {"log": LogEntry.objects.count()}
    with connection.cursor() as cursor:
        for model in apps.get_app_config("pgjobs").get_models():
            table = model._meta.db_table
            cursor.execute(f"SELECT array_agg(t::text ORDER BY t::text) FROM {table} t")
            found[table] = cursor.fetchone()[0]
    return found


def log_in(*, permissions: str | None, is_staff: bool = True) -> Client:
    """Return the client of somebody who has the permissions with that beginning."""
    user = User.objects.create_user("someone", is_staff=is_staff)
    if permissions:
        user.user_permissions.set(
            Permission.objects.filter(
                content_type__app_label="pgjobs", codename__startswith=permissions
            )
        )
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def rows() -> Rows:
    """One of everything."""
    return Rows()


def test_all_addresses_are_known() -> None:
    """So that a page which is added is tried here as well."""
    assert {
        "pgjobs_job_do",
        "pgjobs_job_bulk",
        "pgjobs_worker_control",
        "pgjobs_queue_pause",
    } < set(NAMES)
    assert len(NAMES) >= 35


@pytest.mark.slow
@pytest.mark.parametrize("name", some_always(NAMES))
def test_who_may_view_posts_in_vain(rows: Rows, name: str) -> None:
    client = log_in(permissions="view_")
    before = state()
    for address in rows.addresses(name):
        for form in posts(rows):
            response = client.post(address, form)
            allowed = {200, *REFUSED} if name in ONLY_SHOWN else REFUSED
            assert response.status_code in allowed, (address, form)
    assert state() == before


@pytest.mark.parametrize("verb", [verb for verb in ACTIONS if verb != "export"])
def test_who_may_view_cannot_choose_an_action(rows: Rows, verb: str) -> None:
    client = log_in(permissions="view_")
    before = state()
    for chosen in ({"_selected_action": str(rows.jobs["failed"])}, {"select_across": "1"}):
        form = {"action": verb, "index": "0", "_selected_action": "1"} | chosen
        response = client.post(reverse("admin:pgjobs_job_changelist"), form)
        assert response.status_code == 403
    assert client.get(bulk_address(verb, Selection({}))).status_code == 403
    assert state() == before


@pytest.mark.parametrize("verb", [verb for verb in ACTIONS if verb != "export"])
def test_a_form_of_somebody_else_is_refused(rows: Rows, admin_client: Client, verb: str) -> None:
    """The signed preview of a person who may do it is worth nothing in other hands."""
    where = bulk_address(verb, Selection({}))
    token = token_of(admin_client, where)
    client = log_in(permissions="view_")
    before = state()
    form = {"preview": token, "when": "now", "queue_name": "x", "amount": "1", "unit": "60"}
    assert client.post(where, form).status_code == 403
    assert state() == before


@pytest.mark.slow
def test_who_may_view_is_shown_nothing_that_acts(rows: Rows, admin_client: Client) -> None:
    client = log_in(permissions="view_")
    seen = 0
    for name in NAMES:
        for address in rows.addresses(name):
            response = client.get(address)
            if response.status_code != 200 or response.streaming:
                continue
            seen += 1
            text = response.content.decode()
            text = HARMLESS.sub("", text.partition('id="content"')[2])
            # Exporting is a look at many jobs.
            if "verb=export" not in address and name != "pgjobs_job_changelist":
                assert not ACTING.search(text), address
    assert seen >= 15


@pytest.mark.parametrize("status", JobStatus.values)
def test_the_page_of_a_job_has_no_button_for_who_may_view(rows: Rows, status: str) -> None:
    text = log_in(permissions="view_").get(
        reverse("admin:pgjobs_job_change", args=[rows.jobs[status]])
    )
    assert text.status_code == 200
    for part in ("/do/", "/copy/", "reveal=1"):
        assert part not in text.content.decode()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["get", "post"])
def test_staff_without_a_permission_is_refused(rows: Rows, method: str) -> None:
    client = log_in(permissions=None)
    before = state()
    send: Callable[..., Any] = getattr(client, method)
    for name in NAMES:
        for address in rows.addresses(name):
            assert send(address).status_code in REFUSED, address
    assert state() == before


@pytest.mark.slow
def test_a_stranger_is_led_to_the_login(rows: Rows, client: Client) -> None:
    addresses = [address for name in NAMES for address in rows.addresses(name)]
    for somebody in (client, log_in(permissions="", is_staff=False)):
        for address in addresses:
            for response in (somebody.get(address), somebody.post(address)):
                assert response.status_code == 302, address
                assert response["Location"].startswith(reverse("admin:login")), address
