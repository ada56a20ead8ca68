"""The search of the list of jobs: what each word finds, and what a wrong one is told."""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from django_pgjobs.admin.job_list.search import MAX_TERMS, Reach, parse_search
from tests.admin.lists import NOW, ids_in, listed
from tests.factories import make_job
from tests.odd_rows import admit_odd_values
from tests.test_admin import ROWS

pytestmark = pytest.mark.django_db

TIMEOUT = {"exception_class": "requests.ConnectTimeout", "message": "Read timed out: 'a'"}


def search(client: Client, text: str, **query: str) -> str:
    """Return the list of jobs that a search shows."""
    response = client.get(reverse("admin:pgjobs_job_changelist"), {"q": text, **query})
    assert response.status_code == 200
    return response.content.decode()


def shows(text: str, job_id: int) -> bool:
    """Is the job in the list?"""
    return f'href="{job_id}/change/"' in text


WANTED: dict[str, Any] = {
    "queue_name": "mail",
    "tags": ["nightly", "two words"],
    "worker_ids": ["web-1:4401"],
    "concurrency_key": "shop:7",
    "unique_key": "order:9",
    "subject": "shop.order:17",
    "schedule": "nightly report",
    "args": [17, "x"],
    "kwargs": {"customer": {"id": 5, "name": "Ann Lee"}, "api_token": "s3cret"},
    "status": "failed",
    "errors": [{"exception_class": "Old", "message": "old"}, TIMEOUT],
}


@pytest.mark.parametrize(
    "text",
    [
        "shop.tasks.send_invoice",
        "INVOICE",
        "task:shop.tasks.send_invoice",
        "task:send_invoice",
        "queue:mail",
        "status:failed",
        "tag:nightly",
        'schedule:"nightly report"',
        'tag:"two words"',
        "error:ConnectTimeout",
        'error:"timed out"',
        "worker:web-1:4401",
        "key:shop:7",
        "key:order:9",
        "subject:shop.order:17",
        "args.0:17",
        "args.customer.id:5",
        'args.customer.name:"Ann Lee"',
        "queue:mail tag:nightly invoice",
        "args.api_token:s3cret",
    ],
)
def test_a_word_finds_the_jobs_it_is_about(admin_client: Client, text: str) -> None:
    wanted = make_job("shop.tasks.send_invoice", **WANTED)
    other = make_job("shop.tasks.other", queue_name="sync", kwargs={"customer": {"id": 6}})
    found = search(admin_client, text)
    assert shows(found, wanted)
    assert not shows(found, other)


@pytest.mark.parametrize("form", ["{}", "#{}", "id:{}", "{} {}"])
def test_a_number_finds_the_job(admin_client: Client, form: str) -> None:
    wanted, other = make_job(), make_job()
    found = search(admin_client, form.format(wanted, wanted))
    assert shows(found, wanted)
    assert not shows(found, other)


def test_several_numbers_find_several_jobs(admin_client: Client) -> None:
    ids = [make_job(), make_job(), make_job()]
    found = search(admin_client, f"{ids[0]} {ids[2]}")
    assert [shows(found, job_id) for job_id in ids] == [True, False, True]


def test_only_the_last_error_is_searched(admin_client: Client) -> None:
    job_id = make_job("shop.tasks.send_invoice", **WANTED)
    assert not shows(search(admin_client, "error:Old"), job_id)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour:red", "“colour:” is not known"),
        ("queue:", "A value is missing after “queue:”"),
        ('error:"timed out', "A quotation mark is not closed"),
        ('"', "A quotation mark is not closed"),
        ('""', "is empty"),
        ("args:17", "Expected the name of an argument"),
        ("args.:17", "Expected the name of an argument"),
        ("status:done", "Expected one of ready, running"),
        ("id:abc", "Expected a job&#x27;s number"),
        ("batch:abc", "Expected a batch&#x27;s number after “batch:”"),
        ("tree:abc", "Expected a batch&#x27;s number after “tree:”"),
        ("9" * 30, "No job has the number"),
        (str(2**63), "No job has the number"),
        ("x " * (MAX_TERMS + 1), "at most 20 words"),
        ("x" * 600, "at most 500 characters"),
        ("https://example.com/", "“https:” is not known"),
    ],
)
def test_a_wrong_word_is_told_what_is_expected(admin_client: Client, text: str, words: str) -> None:
    job_id = make_job("https.x")
    found = search(admin_client, text)
    assert words in found
    assert not shows(found, job_id)


@pytest.mark.parametrize(
    "text",
    ["'; DROP TABLE x --", "%", "_", "\\", "a\\", '"a\\', ":", "::", "a:b:c", "<script>", "\u202e",
     "args.0.0.0:1", "args.a..b:1", "args.\\:1", "tag:{}", 'tag:"{a,b}"', "#", "-1", "\u0663", "%s",
     "\0", "queue:\0", "\u2028", " ", "error:%s", "args." + "a." * 50 + "b:1"],
)  # fmt: skip
def test_no_text_breaks_the_search(admin_client: Client, text: str) -> None:
    make_job(tags=["{a,b}"], args=[[[1]]])
    assert "<script>" not in search(admin_client, text).partition('id="searchbar"')[2][:200]


@pytest.mark.parametrize(
    "query",
    [
        {"q": "args.0:1"},
        {"q": "args.0.0.0:1 args.a:1"},
        {"q": "error:x"},
        {"q": "tag:x worker:y key:z"},
        {"worker": "x", "duration__range__gte": "1"},
        {"enqueued_at__range__gte_0": "0001-01-01", "enqueued_at__range__lte_0": "9999-12-31"},
        {"tab": "failed", "finished_at__range__lte_0": "0001-01-01"},
    ],
    ids=str,
)
def test_no_row_breaks_a_search(admin_client: Client, query: dict[str, str]) -> None:
    """Neither what cannot be decoded nor what nobody of ours has written."""
    admit_odd_values()
    for columns in ROWS.values():
        make_job(**columns)
    response = admin_client.get(reverse("admin:pgjobs_job_changelist"), query)
    assert response.status_code == 200
    assert 'class="errornote"' not in response.content.decode()


def test_masked_values_cannot_be_guessed(client: Client) -> None:
    """A list that can be filtered by a value tells the value."""
    job_id = make_job("shop.tasks.send_invoice", **WANTED)
    viewer = User.objects.create_user("viewer", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_job"))
    client.force_login(viewer)
    for text in ("args.api_token:s3cret", "args.customer.password:x"):
        found = search(client, text)
        assert "is masked for you" in found
        assert not shows(found, job_id)
    viewer.user_permissions.add(Permission.objects.get(codename="reveal_job"))
    assert shows(search(client, "args.api_token:s3cret"), job_id)


def test_the_grammar_is_explained(admin_client: Client) -> None:
    assert "quotation marks" in search(admin_client, "x")


def test_a_search_knows_what_it_costs() -> None:
    parts = parse_search("17 queue:a error:b", may_reveal=True).parts
    assert [part.reach for part in parts] == [Reach.PLAIN, Reach.SLOW, Reach.INDEXED]


def test_backslashes_escape_quotation_marks() -> None:
    search = parse_search(r'error:"say \"no\" \\ now"', may_reveal=True)
    assert search.parts[0].lookups == {"error": 'say "no" \\ now'}


@pytest.mark.parametrize("text", ["Order 17 lost", '"Order 17" lost'])
def test_words_in_no_path_of_a_task_lead_to_searches_elsewhere(
    admin_client: Client, text: str
) -> None:
    error = {"exception_class": "a.Lost", "message": "Order 17 lost: no customer"}
    job_id = make_job(status="failed", finished_at=NOW, errors=[error])
    empty = listed(admin_client, tab="failed", q=f"{text} queue:default")
    assert ids_in(empty) == []
    found = re.search(r'<a href="([^"]*)"><bdi>error:&quot;Order 17 lost&quot; queue:', empty)
    assert found is not None
    query = dict(parse_qsl(unescape(found[1])[1:]))
    assert query["tab"] == "failed"
    assert ids_in(listed(admin_client, **query)) == [job_id]


def test_nothing_is_proposed_for_names_or_where_something_is_found(admin_client: Client) -> None:
    make_job("shop.tasks.send")
    assert "<bdi>error:" not in listed(admin_client, q="error:x")
    assert "<bdi>error:" not in listed(admin_client, q="shop")
    assert "<bdi>args.0:17999</bdi>" in listed(admin_client, q="17999")


def test_a_search_that_finds_nothing_leads_to_the_tab_without_it(admin_client: Client) -> None:
    make_job(status="failed", finished_at=NOW)
    text = listed(admin_client, tab="failed", q="task:nothing.like.it")
    assert '<a href="?tab=failed">Show this tab without the search</a>' in text
    assert "without the search" not in listed(admin_client, tab="cancelled")
