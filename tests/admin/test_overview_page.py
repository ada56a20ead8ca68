"""The page Overview: it is there for everybody who may see it, refreshes itself, and is cheap."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import pytest
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.auth.models import Permission, User
from django.core.cache import cache
from django.core.cache.backends.base import BaseCache
from django.db import connection
from django.test import Client, RequestFactory, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path, reverse
from django.utils import timezone
from psycopg import sql

from django_pgjobs.admin import register
from django_pgjobs.admin.overview import live
from django_pgjobs.admin.overview import page as page
from django_pgjobs.admin.overview.chart import RANGES, SPLITS
from django_pgjobs.control.stuck import Stuck, Usual
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import Pause
from django_pgjobs.queries.stuck import LongRun
from tests.admin.overview_support import LOCAL_CACHE, read, words
from tests.factories import ago, make_job, make_jobs, make_running_job, make_worker
from tests.odd_rows import admit_odd_values
from tests.test_admin import HOSTILE, ROWS

pytestmark = pytest.mark.django_db

LIVE = {"X-Requested-With": "pgjobs-live"}


def test_an_empty_installation_has_a_page(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server counts what other tests have rolled back.
    monkeypatch.setattr("django_pgjobs.warnings.listing.MANY_DEAD_ROWS", 10**9)
    text = words(read(admin_client))
    for part in (
        "No job finished in the last 1 hour.",
        "No queue has jobs",
        "No job failed in the last 24 hours.",
        "No worker is alive.",
    ):
        assert part in text
    assert "Warnings" not in text


def test_the_page_shows_the_numbers_and_links_to_the_lists(admin_client: Client) -> None:
    make_jobs(1_234)
    text = read(admin_client)
    assert "Ready 1,234" in words(text)
    jobs = reverse("admin:pgjobs_job_changelist")
    for tab in ("ready", "running", "retrying", "scheduled", "blocked"):
        # The oldest, or what has run for longest, comes first.
        assert f'href="{jobs}?tab={tab}&amp;sort=oldest"' in text
    assert f'href="{jobs}?tab=failed&amp;finished_at__range__gte_0=' in text
    assert f'href="{jobs}?tab=ready&amp;sort=oldest"' in text
    assert f'href="{jobs}?tab=ready&amp;queue=default&amp;sort=oldest"' in text


@pytest.mark.parametrize("key", [*RANGES, "", "1y", "'", "7d&x"])
def test_any_range_of_a_visitor_draws_a_page(admin_client: Client, key: str) -> None:
    make_job(status="successful", finished_at=ago(30))
    chosen = key if key in RANGES else "1h"
    text = read(admin_client, range=key)
    assert f'href="?range={chosen}&amp;by=outcome" aria-current="true"' in text


@pytest.mark.parametrize("by", [*SPLITS, "", "color", "'"])
def test_any_split_of_a_visitor_draws_a_page(admin_client: Client, by: str) -> None:
    make_job(status="successful", finished_at=ago(5))
    split = by if by in SPLITS else "outcome"
    text = read(admin_client, range="6h", by=by)
    assert f'href="?range=6h&amp;by={split}" aria-current="true"' in text
    source = f"{reverse('admin:pgjobs_job_overview')}?range=6h&amp;by={split}"
    assert f'data-pgjobs-source="{source}"' in text


def test_the_chart_is_drawn_without_styles_and_says_what_it_shows(admin_client: Client) -> None:
    make_jobs(3, status="failed", finished_at=ago(5))
    text = read(admin_client)
    label = 'aria-label="Jobs finished in the last 1 hour: 0 Successful, 0 Cancelled, 3 Failed."'
    assert f'role="img" {label}' in text
    assert text.count("<title>") == 60 + 1
    drawn = text.partition('id="pgjobs-live"')[2].partition("</main>")[0]
    assert not re.search(r"<[^>]*\s(style|on\w+)=", drawn)
    assert "<script" not in drawn


@pytest.mark.parametrize("name", ROWS)
def test_every_row_can_be_summed_up(admin_client: Client, name: str) -> None:
    admit_odd_values()
    make_job(**ROWS[name])
    make_job(**ROWS[name] | {"status": "failed", "finished_at": ago(5)})
    text = read(admin_client)
    assert "<script>alert" not in text
    assert "<img src=x" not in text


def test_text_of_rows_is_shown_escaped(admin_client: Client) -> None:
    make_worker(HOSTILE, version=HOSTILE)
    make_worker("other", version="1", queues=["none"])
    make_job(**ROWS["hostile"] | {"status": "ready"})
    make_job(**ROWS["hostile"] | {"finished_at": ago(5)})
    make_jobs(2, concurrency_key=HOSTILE[:60], rate_limit_keys=HOSTILE)
    Pause.objects.create(kind="queue", name=HOSTILE, reason=HOSTILE, paused_by=HOSTILE)
    text = read(admin_client)
    assert text.count("&lt;script&gt;alert(1)") >= 6
    assert "{{ 7*7 }}" in text
    assert "<script>alert" not in text


@pytest.mark.parametrize("moment", ["'infinity'", "'-infinity'", "now() + '9 years'", "NULL"])
def test_a_strange_time_breaks_no_page(admin_client: Client, moment: str) -> None:
    admit_odd_values()
    strange = sql.SQL(moment)
    make_job(last_attempted_at=strange)
    make_job(started_at=strange, finished_at=strange, status="successful")
    make_job(started_at=strange, finished_at=strange, status="failed")
    assert "Ready 1" in words(read(admin_client))


def test_a_paused_queue_can_be_resumed_and_others_paused(admin_client: Client) -> None:
    Pause.objects.create(kind="queue", name="mail")
    make_job(queue_name="sync")
    text = read(admin_client)
    live = text.partition('id="pgjobs-live"')[2].partition("</main>")[0]
    assert "<form" not in live
    links = re.findall(r'href="([^"?]*)\?kind=queue&amp;name=(\w+)&amp;next=([^"]*)"', live)
    assert {unquote(back) for _, _, back in links} == {"/admin/pgjobs/?range=1h&by=outcome"}
    places = {name: url for url, name, _ in links}
    assert places == {
        "mail": reverse("admin:pgjobs_queue_resume"),
        "sync": reverse("admin:pgjobs_queue_pause"),
    }
    values = {"kind": "queue", "name": "sync", "next": reverse("admin:app_list", args=["pgjobs"])}
    response = admin_client.post(places["sync"], values)
    assert response.status_code == 302
    assert response["Location"] == values["next"]
    assert set(Pause.objects.values_list("name", flat=True)) == {"mail", "sync"}


def test_who_may_only_look_sees_everything_and_no_button(viewer: Client) -> None:
    make_jobs(3, queue_name="sync")
    text = read(viewer)
    assert "Ready 3" in words(text)
    assert reverse("admin:pgjobs_queue_pause") not in text
    assert "<button" not in text.partition('id="pgjobs-live"')[2].partition("</main>")[0]


def test_who_may_not_see_jobs_is_told_no_number(client: Client) -> None:
    user = User.objects.create_user("other", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_queuesettings"))
    client.force_login(user)
    make_jobs(77)
    assert client.get(reverse("admin:app_list", args=["pgjobs"])).status_code in (403, 404)
    assert client.get(reverse("admin:pgjobs_job_overview")).status_code == 403
    request = RequestFactory().get("/")
    request.user = user
    assert page.overview(request) == {"state": "refused"}


def see_mine(user: Any, permission: str, jobs: Any) -> Any:
    """Let everybody see the jobs of one queue."""
    return True if jobs is None else jobs.filter(queue_name="mine")


def see_none(user: Any, permission: str, jobs: Any) -> Any:
    """Let nobody see any job."""
    return True if jobs is None else jobs.none()


@pytest.mark.parametrize("hook", ["see_mine", "see_none"])
def test_who_sees_some_jobs_is_told_no_number_of_all(
    admin_client: Client, settings: Any, hook: str
) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.{hook}"}
    make_jobs(77, queue_name="theirs")
    text = words(read(admin_client))
    assert "You see some of the jobs" in text
    assert "77" not in text
    assert "theirs" not in text


def refuse(*args: object, **options: object) -> Any:
    """Take longer than one may."""
    raise TooSlow("too slow")


def test_numbers_that_take_too_long_are_missed_in_place(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "read_hour", refuse)
    text = words(read(admin_client, range="7d"))
    assert "The numbers take longer than they may" in text
    assert "1 hour" in text


@override_settings(CACHES=LOCAL_CACHE)
def test_numbers_are_read_once_for_all_who_look(admin_client: Client, viewer: Client) -> None:
    cache.clear()
    make_jobs(3)
    assert "Ready 3" in words(read(admin_client))
    make_jobs(4)
    with CaptureQueriesContext(connection) as queries:
        assert "Ready 3" in words(read(viewer))
    assert not [query for query in queries if "pgjobs_job_live" in query["sql"]]
    cache.clear()
    assert "Ready 7" in words(read(viewer))


@override_settings(CACHES=LOCAL_CACHE)
def test_numbers_that_took_too_long_are_not_asked_for_at_once_again(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.clear()
    with monkeypatch.context() as patched:
        patched.setattr(page, "read_hour", refuse)
        read(admin_client)
    assert "longer than they may" in read(admin_client)
    cache.clear()
    assert "longer than they may" not in read(admin_client)


class BrokenCache(BaseCache):
    """A cache whose server is gone."""

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)

    def get(self, *args: object, **options: object) -> None:
        raise ConnectionError

    def set(self, *args: object, **options: object) -> None:
        raise ConnectionError


@override_settings(CACHES={"default": {"BACKEND": f"{__name__}.BrokenCache"}})
def test_a_cache_that_fails_is_none(admin_client: Client) -> None:
    make_jobs(3)
    assert "Ready 3" in words(read(admin_client))


def test_it_is_also_a_page_of_its_own(admin_client: Client) -> None:
    make_jobs(3)
    response = admin_client.get(reverse("admin:pgjobs_job_overview"))
    text = response.content.decode()
    assert "Ready 3" in words(text)
    assert "pgjobs-nav" in text
    assert 'aria-current="page">Overview' in text
    assert 'aria-current="page">Overview' in read(admin_client)


def test_a_refresh_is_the_part_that_changes_and_says_when_nothing_did(
    admin_client: Client,
) -> None:
    make_jobs(3)
    address = reverse("admin:pgjobs_job_overview")
    first = admin_client.get(address, headers=LIVE)
    text = first.content.decode()
    assert 'id="pgjobs-live"' in text
    assert "<html" not in text
    assert f'data-pgjobs-source="{address}?range=1h&amp;by=outcome"' in text
    again = admin_client.get(address, headers=LIVE | {"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    make_job()
    changed = admin_client.get(address, headers=LIVE | {"If-None-Match": first["ETag"]})
    assert changed.status_code == 200
    assert "Ready 4" in words(changed.content.decode())


def test_that_time_passes_is_nothing_new(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning says for how long by now: a refresh is not sent in full for that."""
    monkeypatch.setattr(live, "CLOCK_SECONDS", 10**12)
    running = make_running_job()
    numbers = page.read_numbers(RANGES["1h"], SPLITS["outcome"])
    now = timezone.now()
    run = LongRun(running.id, "a.b", "default", running.worker_id, "w", 599.0, None, now)
    address = reverse("admin:pgjobs_job_overview")

    def refresh(seconds: float, **headers: str) -> Any:
        stuck = [Stuck(run._replace(seconds=seconds), Usual(1.0, 2.0), None)]
        situation = numbers.situation._replace(stuck=stuck)
        changed = numbers._replace(situation=situation)
        monkeypatch.setattr(page, "read_numbers", lambda *_: changed)
        return admin_client.get(address, headers=LIVE | headers)

    first = refresh(599)
    assert "It has run for 9 min 59 s" in words(first.content.decode())
    assert refresh(604, **{"If-None-Match": first["ETag"]}).status_code == 304


def test_what_one_may_do_is_part_of_what_changed(admin_client: Client, viewer: Client) -> None:
    address = reverse("admin:pgjobs_job_overview")
    first = admin_client.get(address, headers=LIVE)
    other = viewer.get(address, headers=LIVE | {"If-None-Match": first["ETag"]})
    assert other.status_code == 200


second = AdminSite(name="second")
register(second)
urlpatterns = [path("admin/", admin.site.urls), path("second/", second.urls)]


@override_settings(ROOT_URLCONF=__name__)
@pytest.mark.parametrize("address", ["/second/pgjobs/", "/second/pgjobs/job/overview/"])
def test_on_another_site_all_links_stay_there(admin_client: Client, address: str) -> None:
    make_jobs(57, queue_name="reports")
    make_worker(queues=["mail"])
    make_job(status="failed", finished_at=ago(5), errors=[{"exception_class": "a.B"}])
    for headers in ({}, LIVE):
        response = admin_client.get(address, headers=headers)
        text = response.content.decode()
        assert "57 jobs wait in queue reports" in text
        drawn = text.partition('id="pgjobs-live"')[2].partition("</main>")[0]
        links = re.findall(r'(?:href|action|source|value)="(/[^"]*)"', drawn)
        assert len(links) > 10
        assert [link for link in links if not link.startswith("/second/")] == []
