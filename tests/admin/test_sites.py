"""The admin on a site of the project's own, beside Django's."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import path, reverse

from django_pgjobs import admin as pgjobs_admin
from django_pgjobs.models import Job, Pause, RateLimit
from tests.factories import make_job, make_running_job
from tests.test_admin import NOW

office = admin.AdminSite(name="office")
pgjobs_admin.register(office)

urlpatterns = [path("admin/", admin.site.urls), path("back-office/", office.urls)]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.admin.test_sites")]

PAGES = [
    "pgjobs_job_overview",
    "pgjobs_job_changelist",
    "pgjobs_job_failures",
    "pgjobs_job_stuck",
    "pgjobs_job_mute",
    "pgjobs_queuesettings_changelist",
    "pgjobs_worker_changelist",
    "pgjobs_ratelimit_changelist",
    "pgjobs_job_system",
    "pgjobs_job_bulk",
    "pgjobs_queue_pause",
    "pgjobs_ratelimit_add",
]


def own_page(name: str, *args: object) -> str:
    """Return the address of a page on the site of the project's own."""
    return reverse(f"office:{name}", args=args)


def links_of(client: Client, address: str) -> list[str]:
    """Return where a page leads to and where its forms go."""
    response = client.get(address)
    assert response.status_code == 200
    return re.findall(r'(?:href|action)="(/[^"]*)"', response.content.decode())


def make_rows() -> int:
    """Make what pages have links to; return the id of a failed job."""
    RateLimit.objects.create(name="api", count=1, period=1.0)
    Pause.objects.create(kind="queue", name="mail", reason="", paused_by="")
    make_running_job(queue_name="mail")
    make_job(run_after=NOW)
    error = {"exception_class": "KeyError", "message": "x", "traceback": ""}
    return make_job(status="failed", errors=[error], finished_at=NOW)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_leads_to_pages_of_its_own_site(admin_client: Client, name: str) -> None:
    make_rows()
    links = links_of(admin_client, own_page(name))
    assert any(link.startswith("/back-office/pgjobs/") for link in links)
    assert not [link for link in links if link.startswith("/admin/")]


@pytest.mark.slow
def test_the_pages_of_a_job_stay_on_the_site(admin_client: Client) -> None:
    job_id = make_rows()
    for name in ("change", "copy", "history"):
        links = links_of(admin_client, own_page(f"pgjobs_job_{name}", job_id))
        assert not [link for link in links if link.startswith("/admin/")]
    response = admin_client.post(own_page("pgjobs_job_do", job_id, "requeue"))
    assert response["Location"] == own_page("pgjobs_job_change", job_id)
    assert Job.objects.get(pk=job_id).status == "ready"


def test_the_overview_is_the_index_of_the_app(admin_client: Client) -> None:
    make_rows()
    links = links_of(admin_client, reverse("office:app_list", args=["pgjobs"]))
    assert own_page("pgjobs_job_failures") in links
    assert not [link for link in links if link.startswith("/admin/")]


def test_a_bulk_change_stays_on_the_site(admin_client: Client) -> None:
    make_rows()
    links = links_of(admin_client, own_page("pgjobs_job_failures"))
    (ask,) = [link.replace("&amp;", "&") for link in links if "verb=requeue" in link]
    links = links_of(admin_client, ask)
    assert not [link for link in links if link.startswith("/admin/")]
