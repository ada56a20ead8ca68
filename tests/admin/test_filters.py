"""The filters of the list of jobs: half-typed ranges, wrong values, and what they offer."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.templatetags.admin_list import admin_list_filter
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import reverse
from psycopg import sql

from django_pgjobs.admin.job_list.changelist import JobChangeList, Refused, lookups_of
from django_pgjobs.admin.job_list.filters import NumberRangeFilter, QueueFilter
from django_pgjobs.models import Job, QueueSettings
from tests.admin.lists import listed, send
from tests.factories import make_job, make_worker
from tests.tasks import add

pytestmark = pytest.mark.django_db

ENQUEUED = "enqueued_at__range__"
FINISHED = "finished_at__range__"
WRONG = [
    ({f"{ENQUEUED}gte_0": "yesterday"}, "Expected a date such as 2026-01-31"),
    ({f"{ENQUEUED}gte_0": "31.01.2026"}, "Expected a date such as 2026-01-31"),
    ({f"{ENQUEUED}gte_0": "2026-01-31", f"{ENQUEUED}gte_1": "noon"}, "Expected a time such as"),
    ({f"{ENQUEUED}lte_1": "14:30"}, "A time needs a date"),
    (
        {f"{ENQUEUED}gte_0": "2026-02-01", f"{ENQUEUED}lte_0": "2026-01-01"},
        "The first value is beyond the second",
    ),
    ({f"{FINISHED}lte_0": "2026-02-30"}, "Expected a date such as 2026-01-31"),
    ({"attempts__range__gte": "many"}, "Enter a whole number"),
    ({"attempts__range__gte": "-1"}, "greater than or equal to 0"),
    ({"attempts__range__lte": "9" * 30}, "less than or equal to"),
    ({"attempts__range__gte": "5", "attempts__range__lte": "4"}, "beyond the second"),
    ({"duration__range__gte": "nan"}, "Enter a number"),
    ({"duration__range__gte": "1e300"}, "less than or equal to"),
    ({"queue": "a\0b"}, "Null characters are not allowed"),
    ({"task": "x" * 600}, "at most 512 characters"),
]


def ids_in(text: str) -> set[int]:
    """Return the ids of the jobs in the list."""
    return {int(found) for found in re.findall(r'href="(\d+)/change/', text)}


def at(text: str) -> sql.Composable:
    """Return SQL of a moment in the time zone of the tests."""
    return sql.SQL("({}::timestamp AT TIME ZONE 'Asia/Kathmandu')").format(sql.Literal(text))


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({"gte_0": "2026-01-02"}, "bcd"),
        ({"lte_0": "2026-01-02"}, "abc"),
        ({"gte_0": "2026-01-02", "lte_0": "2026-01-02"}, "bc"),
        ({"gte_0": "2026-01-02", "gte_1": "12:00"}, "cd"),
        ({"lte_0": "2026-01-02", "lte_1": "23:59:59"}, "abc"),
        ({"lte_0": "2026-01-02", "lte_1": "23:59:58"}, "ab"),
        ({"lte_0": "2026-01-02", "lte_1": "00:00"}, "ab"),
        ({"gte_0": "2026-01-01", "gte_1": "00:00:00", "lte_0": "", "lte_1": ""}, "abcd"),
    ],
)
@pytest.mark.parametrize("field", ["enqueued_at", "finished_at"])
def test_a_range_of_time_may_be_typed_half(
    admin_client: Client, field: str, query: dict[str, str], wanted: str
) -> None:
    """A missing time is the begin of the first day, and the end of the last one."""
    moments = {
        "a": "2026-01-01 23:59:59.999",
        "b": "2026-01-02 00:00:00.5",
        "c": "2026-01-02 23:59:59.9",
        "d": "2026-01-03 00:00:00",
    }
    common = {"status": "successful", "enqueued_at": at("2026-01-01 00:00:00")}
    ids = {make_job(**{**common, field: at(text)}): name for name, text in moments.items()}
    given = {f"{field}__range__{name}": value for name, value in query.items() if value}
    found = ids_in(listed(admin_client, **given))
    assert "".join(sorted(ids[job_id] for job_id in found)) == wanted


@pytest.mark.parametrize(("query", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_filter_shows_no_jobs_and_says_why(
    admin_client: Client, query: dict[str, str], words: str
) -> None:
    """A filter that cannot be read must not show everything, ready for an action on all."""
    make_job(attempts=5)
    text = listed(admin_client, **query)
    assert words in text
    assert 'class="errornote"' in text
    assert ids_in(text) == set()
    assert 'name="action"' not in text


@pytest.mark.parametrize(("query", "words"), WRONG, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("across", ["0", "1"])
def test_a_wrong_filter_keeps_actions_from_everything(
    admin_client: Client, query: dict[str, str], words: str, across: str
) -> None:
    job_id = make_job(attempts=5)
    form = {
        "action": "cancel",
        "index": "0",
        "select_across": across,
        "_selected_action": str(job_id),
    }
    response = send(admin_client, form, follow=True, **query)
    assert "Nothing was changed." in response.content.decode()
    assert response.resolver_match.url_name == "pgjobs_job_changelist"


def test_jobs_are_filtered_by_attempts_and_duration(admin_client: Client) -> None:
    now = sql.SQL("now()")
    ended = {"status": "successful", "finished_at": now}
    quick = make_job(**ended, attempts=1, last_attempted_at=sql.SQL("now() - interval '1 s'"))
    slow = make_job(**ended, attempts=4, last_attempted_at=sql.SQL("now() - interval '9 s'"))
    waiting = make_job()
    assert ids_in(listed(admin_client, attempts__range__gte="2")) == {slow}
    assert ids_in(listed(admin_client, attempts__range__lte="1")) == {quick, waiting}
    assert ids_in(listed(admin_client, duration__range__gte="5.5")) == {slow}
    assert ids_in(listed(admin_client, duration__range__lte="2")) == {quick}


def test_jobs_are_filtered_by_queue_task_and_worker(admin_client: Client) -> None:
    mail = make_job("shop.a", queue_name="mail", worker_ids=["web-1:1"])
    make_job("shop.ab", queue_name="mail2", worker_ids=["web-1:11"])
    for query in ({"queue": "mail"}, {"task": "shop.a"}, {"worker": "web-1:1"}):
        assert ids_in(listed(admin_client, **query)) == {mail}


def test_filters_offer_names_that_there_are(admin_client: Client) -> None:
    make_job("shop.seen", queue_name="of-a-job")
    QueueSettings.objects.create(queue_name="of-settings")
    make_worker("web-9:1")
    text = listed(admin_client)
    for name in ("shop.seen", add.module_path, "of-a-job", "of-settings", "web-9:1"):
        assert f'<option value="{name}">' in text


def test_no_more_names_are_offered_than_can_be_chosen_from(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_pgjobs.admin.job_list.suggestions.MAX_NAMES", 3)
    for number in range(9):
        make_job(queue_name=f"queue-{number}")
    offered = listed(admin_client).partition('<datalist id="pgjobs-names-queue">')[2]
    assert offered.partition("</datalist>")[0].count("<option") == 3


def test_filters_need_no_script_and_no_style_in_the_page(admin_client: Client) -> None:
    """Those of the library that they are made of do, and break a strict CSP."""
    text = listed(admin_client)
    form = text.partition("pgjobs-filters-title")[2].partition("</nav>")[0]
    for mark in ("<script", "<style", "style=", "onclick"):
        assert mark not in form
    assert 'type="date"' in form
    assert 'type="time"' in form


def test_ids_of_a_filter_are_the_same_on_each_page(admin_client: Client) -> None:
    first, second = (re.findall(r'\bid="([^"]+)"', listed(admin_client)) for _ in range(2))
    assert first == second
    assert len(first) == len(set(first))


def test_the_form_keeps_the_tab_and_the_search(admin_client: Client) -> None:
    text = listed(admin_client, tab="failed", q="x", queue="mail", per="100", after="~5")
    form = text.partition("pgjobs-filters-title")[2].partition("</nav>")[0]
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    assert hidden == {"tab": "failed", "q": "x", "per": "100"}


def test_empty_fields_of_a_form_leave_the_address(admin_client: Client) -> None:
    response = admin_client.get(
        reverse("admin:pgjobs_job_changelist"), {"queue": "mail", "task": "", "q": ""}
    )
    assert response.status_code == 302
    assert response["Location"].endswith("/job/?queue=mail")


class PriorityFilter(admin.SimpleListFilter):
    """A filter of a project."""

    title = "urgent"
    parameter_name = "urgent"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [("1", "urgent only")]

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset.filter(priority__gt=0) if self.value() else queryset


def test_a_project_may_add_filters_of_its_own(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, rf: RequestFactory
) -> None:
    job_admin = admin.site._registry[Job]
    monkeypatch.setattr(
        type(job_admin), "list_filter", (*job_admin.list_filter, PriorityFilter, "backend")
    )
    urgent, usual = make_job(priority=5), make_job()
    assert ids_in(listed(admin_client)) == {urgent, usual}
    text = listed(admin_client, urgent="1")
    assert "urgent only" in text
    assert ids_in(text) == {urgent}
    request = rf.get("/", {"urgent": "1"})
    request.user = User.objects.get(username="admin")
    with pytest.raises(Refused, match="Tick the jobs"):
        lookups_of(job_admin.get_changelist_instance(request))


def test_filters_say_their_lookups(rf: RequestFactory, admin_user: User) -> None:
    request = rf.get(
        "/", {"tab": "failed", "queue": "mail", "attempts__range__gte": "2", "q": "tag:a"}
    )
    request.user = admin_user
    changelist = admin.site._registry[Job].get_changelist_instance(request)
    assert isinstance(changelist, JobChangeList)
    assert lookups_of(changelist) == {
        "status": "failed",
        "all_of": [{"tag": "a"}, {"queue_name": "mail"}, {"attempts__gte": 2}],
    }


def test_a_list_of_another_theme_draws_and_applies_each_filter_by_itself(
    rf: RequestFactory, admin_user: User
) -> None:
    wanted = make_job(queue_name="mail", attempts=3)
    make_job(queue_name="mail", attempts=1)
    make_job(attempts=3)
    request = rf.get("/", {"tab": "ready", "queue": "mail", "attempts__range__gte": "2"})
    request.user = admin_user
    changelist = admin.site._registry[Job].get_changelist_instance(request)
    jobs = Job.objects.all()
    for spec in changelist.filter_specs:
        jobs = spec.queryset(request, jobs)
    assert [job.pk for job in jobs] == [wanted]
    [drawn] = [
        admin_list_filter(changelist, spec)
        for spec in changelist.filter_specs
        if isinstance(spec, QueueFilter)
    ]
    assert 'name="queue" value="mail"' in drawn
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', drawn))
    assert hidden == {"tab": "ready", "attempts__range__gte": "2"}


@pytest.mark.parametrize(("query", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_filter_by_itself_keeps_no_jobs(
    rf: RequestFactory, admin_user: User, query: dict[str, str], words: str
) -> None:
    make_job(attempts=5)
    request = rf.get("/", query)
    request.user = admin_user
    changelist = admin.site._registry[Job].get_changelist_instance(request)
    [wrong] = [spec for spec in changelist.filter_specs if spec.problem]
    assert words in wrong.problem
    assert not wrong.queryset(request, Job.objects.all()).exists()


def test_filters_that_an_address_fills_in_are_folded_and_said(admin_client: Client) -> None:
    """Who follows a number sees its jobs, not a form."""

    def folded(**query: str) -> tuple[bool, str]:
        text = admin_client.get(reverse("admin:pgjobs_job_changelist"), query).content.decode()
        [(attributes, words)] = re.findall(r"<details([^>]*)><summary[^>]*>(.*?)</summary>", text)
        return "open" not in attributes, re.sub(r"<[^>]*>", "", words)

    assert folded() == (True, "Filter")
    moment = {f"{FINISHED}gte_0": "2026-01-31", f"{FINISHED}gte_1": "14:30:00"}
    assert folded(queue="mail & more", attempts__range__lte="4", **moment) == (
        True,
        "Filter Queue: mail &amp; more · Finished: from 01/31/2026 2:30 p.m. · Attempts: to 4",
    )
    assert folded(attempts__range__lte="many") == (False, "Filter")


def test_a_filter_that_is_not_filled_in_says_nothing() -> None:
    field = Job._meta.get_field("attempts")
    spec = NumberRangeFilter(field, None, {}, Job, None, field_path="attempts")
    assert (spec.parts(), spec.problem, spec.get_facet_counts("id", None)) == ([], "", {})
