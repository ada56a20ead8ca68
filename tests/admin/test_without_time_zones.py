"""Pages and commands where USE_TZ is False: Django reads instants without a time zone then."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from tests.admin.demo_data import fill
from tests.admin.lists import ids_in, link, listed
from tests.browser.pages import PAGES
from tests.factories import make_job
from tests.helpers import sleep_by
from tests.schedules.support import make_schedule
from tests.test_client import make_finished_job

LOOKS = ("stats", "failures", "workers", "list", "stuck", "workflows", "schedules list")


@pytest.mark.slow
@pytest.mark.django_db
def test_all_pages_are_drawn(client: Client, settings: Any) -> None:
    fill()
    addresses = {name: find() for name, find in PAGES.items()}
    client.force_login(User.objects.create_superuser("anna"))
    settings.USE_TZ = False
    answers = {name: client.get(address).status_code for name, address in addresses.items()}
    assert {name for name, code in answers.items() if code >= 400} == {
        "job, missing",
        "batch, missing",
    }


@pytest.mark.django_db
@pytest.mark.parametrize("words", [*LOOKS, *(f"{look} --json" for look in LOOKS)])
def test_what_commands_list_is_printed(settings: Any, words: str) -> None:
    settings.USE_TZ = False
    make_job()
    make_finished_job("failed", result=None)
    call_command("jobs", *words.split(), stdout=io.StringIO())


@pytest.mark.django_db
def test_stats_is_watched(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.USE_TZ = False
    screen = io.StringIO()

    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    sleep_by(monkeypatch, stop)
    with pytest.raises(KeyboardInterrupt):
        call_command("jobs", "stats", "--watch", stdout=screen)
    assert screen.getvalue().startswith("--- 20")


@pytest.mark.slow
@pytest.mark.django_db
def test_the_list_goes_on_behind_its_first_page(admin_client: Client, settings: Any) -> None:
    settings.USE_TZ = False
    ids = [make_finished_job("failed", result=None) for _ in range(60)]
    first = listed(admin_client, tab="failed")
    second = listed(admin_client, **(link(first, "next") or {}))
    assert sorted(ids_in(first) + ids_in(second)) == ids


@pytest.mark.django_db
def test_a_backfill_is_shown(admin_client: Client, settings: Any) -> None:
    make_schedule("hourly")
    settings.USE_TZ = False
    page = reverse("admin:pgjobs_schedule_backfill")
    given = {"name": "hourly", "begin": "2026-01-01T00:30", "end": "2026-01-01T02:30"}
    assert "2 occurrences" in admin_client.get(page, given).content.decode()
