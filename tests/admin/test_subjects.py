"""The jobs of a row on the row's own page, in the project's own admin."""

from __future__ import annotations

import re
from typing import Any, ClassVar
from urllib.parse import unquote_plus

import pytest
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_pgjobs.admin import JobsOfRowMixin, subjects
from django_pgjobs.exceptions import TooSlow
from django_pgjobs.models import Job
from tests.factories import make_job, make_jobs
from tests.planner import KNOWN, forget_jobs, rows_read
from tests.tasks import add
from tests.test_admin import HOSTILE, NOW, page

pytestmark = pytest.mark.django_db
JOBS = ["pgjobs_job_live", "pgjobs_job_finished"]


class Plain(JobsOfRowMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """As little as there can be."""


class WithFields(JobsOfRowMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """The project names the fields."""

    fields = ("name",)
    readonly_fields: ClassVar[Any] = ("name",)


class WithFieldsets(JobsOfRowMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """The project names fieldsets."""

    fieldsets: ClassVar[Any] = [(None, {"fields": [("name",)]})]


class Placed(JobsOfRowMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """The project says where the jobs go."""

    fieldsets: ClassVar[Any] = [
        ("First", {"fields": ["jobs_of_row"]}),
        (None, {"fields": ["name"]}),
    ]


class OfDjango(JobsOfRowMixin, GroupAdmin):
    """An admin with forms of its own."""


CLASSES = (Plain, WithFields, WithFieldsets, Placed, OfDjango)
by_class = pytest.mark.parametrize("base", CLASSES, ids=lambda base: base.__name__)


@pytest.fixture
def group() -> Group:
    """A saved row."""
    return Group.objects.create(name="editors")


def request_of(user: Any) -> HttpRequest:
    """Return a request of somebody."""
    request = RequestFactory().get("/")
    request.user = user
    return request


def read_row(base: Any, user: Any, row: Group | None) -> str:
    """Return the page of a row in an admin of that class, without the places where paths break."""
    request = request_of(user)
    row_admin = base(Group, admin.site)
    view = row_admin.changeform_view(request, str(row.pk) if row else None)
    return str(view.render().content.decode().replace("<wbr>", ""))


@by_class
def test_the_page_of_a_row_shows_its_jobs(base: Any, admin_user: User, group: Group) -> None:
    result = add.using(subject=group).enqueue(1, 2)
    make_job("tests.tasks.other")
    text = read_row(base, admin_user, group)
    assert text.count("tests.tasks.add") == 1
    assert "tests.tasks.other" not in text
    assert f'href="{page("job", "change", result.id)}"' in text
    assert "Ready" in text
    assert "pgjobs/admin.css" in text
    assert text.count("Newest jobs") == 1


@by_class
def test_a_new_row_has_no_jobs_yet(base: Any, admin_user: User) -> None:
    assert "Newest jobs" not in read_row(base, admin_user, None)


@by_class
def test_a_form_with_the_jobs_is_valid(base: Any) -> None:
    assert not base(Group, admin.site).check()


def test_the_newest_twenty_are_shown_with_a_link_to_all(admin_user: User, group: Group) -> None:
    ids = make_jobs(25, subject=f"auth.group:{group.pk}", status="failed", finished_at=NOW)
    with CaptureQueriesContext(connection) as queries:
        text = read_row(Plain, admin_user, group)
    assert text.count("tests.tasks.add") == 20
    assert page("job", "change", ids[-1]) in text
    assert page("job", "change", ids[0]) not in text
    assert f"?q=subject%3A%22auth.group%3A{group.pk}%22" in text
    about_jobs = "".join(q["sql"] for q in queries if 'FROM "pgjobs_job"' in q["sql"])
    for column in ("args", "kwargs", "result", "errors", "metadata"):
        assert f'"{column}"' not in about_jobs


def counts_in(text: str) -> list[str]:
    """Return the line that tells how many jobs there are, in words, and where each leads."""
    [line] = re.findall(r'<div class="pgjobs-row pgjobs-counts">(.*?)</div>', text, re.DOTALL)
    lead = re.findall(r"<span>([^<]*)</span>", line)
    of_one = r'<(?:a href="([^"]*)"|span[^>]*)><span class="pgjobs-.*?</span> (\w+)</span> (\d+)'
    parts = re.findall(of_one, line)
    told = [f"{label} {number} {unquote_plus(url)}".strip() for url, label, number in parts]
    return [*lead, *told]


@pytest.mark.slow
def test_failed_jobs_that_are_too_old_to_be_shown_are_counted(
    admin_user: User, admin_client: Client, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = f"auth.group:{group.pk}"
    failed = make_jobs(4, subject=subject, status="failed", finished_at=NOW)
    make_jobs(21, subject=subject, status="successful", finished_at=NOW)
    make_jobs(2, subject=subject)
    other = make_job(subject="auth.group:0", status="failed", finished_at=NOW)
    listed = f'{page("job", "changelist")}?q=subject:"{subject}" status:'
    text = read_row(Plain, admin_user, group)
    assert text.count("✕") == 1
    assert counts_in(text) == [f"Failed 4 {listed}failed", "Running 0", f"Ready 2 {listed}ready"]
    found = admin_client.get(f"{listed}failed").content.decode()
    assert [f"#{each}" in found for each in (*failed, other)] == [True] * 4 + [False]
    monkeypatch.setattr(subjects, "MAX_COUNTED", 24)
    text = read_row(Plain, admin_user, group)
    assert counts_in(text)[:2] == ["Of the newest 24 jobs:", f"Failed 1 {listed}failed"]


def test_jobs_that_are_all_shown_are_counted_without_asking_again(
    admin_user: User, group: Group
) -> None:
    make_jobs(3, subject=f"auth.group:{group.pk}", status="failed", finished_at=NOW)
    with CaptureQueriesContext(connection) as queries:
        text = read_row(Plain, admin_user, group)
    assert len([q for q in queries if 'FROM "pgjobs_job"' in q["sql"]]) == 2
    assert [each.split(" /")[0] for each in counts_in(text)] == ["Failed 3", "Running 0", "Ready 0"]


@pytest.mark.parametrize("known", KNOWN)
def test_the_jobs_of_other_rows_are_not_read(admin_user: User, group: Group, known: str) -> None:
    make_jobs(50, subject=f"auth.group:{group.pk}", status="failed", finished_at=NOW)
    make_jobs(1_000, subject="auth.group:0", status="failed", finished_at=NOW)
    make_jobs(1_000, subject="auth.group:0")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE pgjobs_job_live, pgjobs_job_finished")
        forget_jobs(cursor, known)
        before = sum(rows_read(cursor, table) for table in JOBS)
        found = Job.objects.for_subject(group)  # type: ignore[attr-defined]
        counts = subjects.count_statuses(found, subjects.read_within_budget(found) or [])
        read = sum(rows_read(cursor, table) for table in JOBS) - before
    assert counts == ({"failed": 50}, False)
    assert read <= 20 + 50


@pytest.mark.slow
def test_people_without_the_permission_do_not_see_jobs(group: Group) -> None:
    make_job(subject=f"auth.group:{group.pk}")
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="change_group"))
    assert "tests.tasks.add" not in read_row(Plain, user, group)
    user = User.objects.get(pk=user.pk)
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    assert "tests.tasks.add" in read_row(Plain, user, group)


def no_jobs(user: Any, permission: str, jobs: Any) -> Any:
    """Hide every job, but not the pages."""
    return True if jobs is None else jobs.none()


def test_a_hook_narrows_what_is_shown(admin_user: User, group: Group, settings: Any) -> None:
    settings.PGJOBS = {"ADMIN_PERMISSION": f"{__name__}.no_jobs"}
    make_job(subject=f"auth.group:{group.pk}")
    assert "No job is about this row." in read_row(Plain, admin_user, group)


@pytest.mark.slow
def test_what_may_be_done_to_the_jobs_is_offered(admin_user: User, group: Group) -> None:
    make_job(subject=f"auth.group:{group.pk}")
    failed = make_job(subject=f"auth.group:{group.pk}", status="failed")
    text = read_row(Plain, admin_user, group)
    assert f'data-pgjobs-post="{page("job", "do", failed, "requeue")}"' in text
    assert "/do/cancel/" in text
    assert "pgjobs/row_jobs.js" in text
    # No button of ours may answer to the return key in the row's own form.
    assert '<button type="submit"' not in text.split('<div id="content-main"')[1]
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.set(
        Permission.objects.filter(codename__in=["change_group", "view_job"])
    )
    assert "/do/" not in read_row(Plain, viewer, group)


def test_hostile_rows_are_shown_escaped(admin_user: User, group: Group) -> None:
    make_job(HOSTILE, subject=f"auth.group:{group.pk}", queue_name=HOSTILE)
    text = read_row(Plain, admin_user, group)
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text


def test_a_row_that_is_not_saved_yet_has_no_jobs(admin_user: User) -> None:
    request = request_of(admin_user)
    row_admin = Placed(Group, admin.site)
    for row in (None, Group(name="new")):
        assert "jobs_of_row" not in row_admin.get_readonly_fields(request, row)
        names = [options["fields"] for _, options in row_admin.get_fieldsets(request, row)]
        assert names == [[], ["name"]]


def test_jobs_that_take_too_long_do_not_hold_up_the_row(
    admin_user: User, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*args: Any, **limits: Any) -> Any:
        raise TooSlow

    monkeypatch.setattr("django_pgjobs.admin.subjects.time_budget", slow)
    text = read_row(Plain, admin_user, group)
    assert "could not be read in time" in text
    assert 'value="editors"' in text


def test_a_site_without_our_pages_shows_jobs_without_links(admin_user: User, group: Group) -> None:
    make_job(subject=f"auth.group:{group.pk}")
    site = admin.AdminSite(name="other")
    request = request_of(admin_user)
    row_admin = Plain(Group, site)
    row = row_admin.get_object(request, str(group.pk))
    text = row_admin.jobs_of_row(row).replace("<wbr>", "")
    assert "tests.tasks.add" in text
    assert "href" not in text


def test_an_order_of_the_example_shows_its_jobs(admin_client: Client) -> None:
    from example_project.shop.models import Customer, Order

    user = User.objects.create_user("anna")
    customer = Customer.objects.create(user=user)
    order = Order.objects.create(reference="R-1", customer=customer, total_amount=5)
    address = reverse("admin:shop_order_changelist")
    data = {"action": "settle_again", "_selected_action": str(order.pk)}
    admin_client.post(address, data)
    [job] = Job.objects.for_subject(order)  # type: ignore[attr-defined]
    text = admin_client.get(reverse("admin:shop_order_change", args=[order.pk])).content.decode()
    assert f'href="{page("job", "change", job.pk)}"' in text
