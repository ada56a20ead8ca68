"""The plain admin: every row can be looked at, whatever it holds; nothing can be changed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from psycopg import sql

from django_pgjobs.models import Job, Worker
from tests.factories import make_job, make_jobs, make_running_job, make_worker
from tests.odd_rows import admit_odd_values

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>{{ 7*7 }}\u202e%s&amp;"
LONG_NUMBER = sql.SQL("('[1' || repeat('0', 5000) || ']')::json")
NOW = sql.SQL("now()")


def nested(levels: int) -> sql.SQL:
    """Return SQL of JSON lists in each other."""
    return sql.SQL(f"(repeat('[', {levels}) || repeat(']', {levels}))::json")


def page(model: str, name: str, *args: Any) -> str:
    """Return the address of a page of the admin."""
    return reverse(f"admin:pgjobs_{model}_{name}", args=args)


def read(client: Client, *address: Any, **query: str) -> str:
    """Return the text of a page that has to be there."""
    response = client.get(page(*address), query)
    assert response.status_code == 200
    return response.content.decode()


ROWS: dict[str, dict[str, Any]] = {
    "minimal": {"task_path": "x"},
    "numbers": {"args": LONG_NUMBER},
    "deep": {"args": nested(900), "metadata": nested(900)},
    "deeper": {"args": nested(5_000), "kwargs": nested(3_000)},
    "deep result": {"status": "successful", "result": nested(900), "progress": nested(3_000)},
    "long result": {"status": "successful", "result": LONG_NUMBER, "finished_at": NOW},
    "wrong types": {"args": {"a": 1}, "kwargs": [1], "metadata": "text"},
    "null": {"args": sql.SQL("'null'::json"), "result": sql.SQL("'null'::json")},
    "errors": {"status": "failed", "errors": [1, {"x": HOSTILE}, None, ["y"]]},
    "errors' type": {"status": "failed", "errors": {"a": "b"}},
    "megabyte": {"args": sql.SQL("json_build_array(repeat('x', 1000000))")},
    "hostile": {
        "status": "failed",
        "task_path": HOSTILE,
        "queue_name": HOSTILE,
        "backend": HOSTILE,
        "args": [HOSTILE, {HOSTILE: HOSTILE}],
        "kwargs": {HOSTILE: [HOSTILE]},
        "metadata": {HOSTILE: HOSTILE},
        "tags": [HOSTILE],
        "worker_ids": [HOSTILE],
        "correlation_id": HOSTILE,
        "note": HOSTILE,
        "result": HOSTILE,
        "progress": {"message": HOSTILE},
        "errors": [{"exception_class": HOSTILE, "message": HOSTILE, "traceback": HOSTILE}],
    },
    "control": {"task_path": "\x01\x1b[31m\n\r\x7f", "note": "\x0b\u2028\ufffe"},
    "strange arrays": {
        "tags": sql.SQL("'{NULL,NULL}'::text[]"),
        "worker_ids": sql.SQL("'{{a,b},{c,d}}'::text[]"),
    },
    "first year": {"run_after": sql.SQL("'0001-01-02 00:00+00'")},
    "last year": {"run_after": sql.SQL("'9999-12-30 00:00+00'")},
    "extreme": {"attempts": 2**31 - 1, "claim": 2**63 - 1, "timeout": 1e308, "priority": -100},
}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_can_be_looked_at(admin_client: Client, name: str) -> None:
    """A list must not fall because of one row in it."""
    admit_odd_values()
    make_job()
    job_id = make_job(**ROWS[name])
    for text in (
        read(admin_client, "job", "changelist"),
        read(admin_client, "job", "change", job_id),
        read(admin_client, "job", "history", job_id),
    ):
        assert str(job_id) in text
        assert "<script>alert" not in text
        assert "<img src=x" not in text
    response = admin_client.get(page("job", "delete", job_id))
    assert response.status_code == 403


def test_text_of_a_row_is_shown_escaped(admin_client: Client) -> None:
    job_id = make_job(**ROWS["hostile"])
    for text in (
        read(admin_client, "job", "changelist"),
        read(admin_client, "job", "change", job_id),
    ):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "{{ 7*7 }}" in text


def test_what_cannot_be_decoded_is_shown_as_it_is(admin_client: Client) -> None:
    job_id = make_job(args=LONG_NUMBER)
    assert "[1" + "0" * 5_000 + "]" in read(admin_client, "job", "change", job_id)


@pytest.mark.parametrize("status", ["ready", "running", "successful", "failed", "cancelled"])
def test_jobs_are_filtered_by_status(admin_client: Client, status: str) -> None:
    others = make_jobs(3, status="failed" if status == "ready" else "ready")
    wanted = make_job(status=status)
    text = read(admin_client, "job", "changelist", status__exact=status)
    assert f'href="{wanted}/change/"' in text
    assert not any(f'href="{other}/change/"' in text for other in others)


@pytest.mark.parametrize(
    "query",
    [
        {"p": "999"},
        {"all": ""},
        {"o": "-2.1"},
        {"q": "x'"},
        {"e": "1"},
        {"status__exact": "'; --"},
        {"nothing": "1"},
        {"id__exact": "9" * 30},
        {"args__icontains": "x"},
    ],
    ids=str,
)
def test_no_query_of_a_visitor_breaks_the_list(admin_client: Client, query: dict[str, str]) -> None:
    make_jobs(60)
    response = admin_client.get(page("job", "changelist"), query)
    # Django answers what it does not allow with a redirection to ?e=1, or with 400.
    assert response.status_code in (200, 302, 400)


def test_the_list_unpacks_no_payloads_and_counts_no_table(admin_client: Client) -> None:
    """One page of any table costs the same."""
    make_jobs(70, args=[1], result={"r": 1}, status="successful", finished_at=NOW)
    with CaptureQueriesContext(connection) as queries:
        text = read(admin_client, "job", "changelist")
    about_jobs = [query["sql"] for query in queries if '"pgjobs_job"' in query["sql"]]
    tabs, names, rows = sorted(about_jobs, key=lambda text: ("pgjobs_args" in text, "kind" in text))
    assert tabs.count(" LIMIT ") == 6  # four tabs one by one, the others by two scans
    assert names.count(" LIMIT ") == 4
    for column in ("kwargs", "args"):
        assert rows.count(f'"{column}"') == 2
        assert f'left("pgjobs_job"."{column}"::text, 200)' in rows
    for column in ("result", "metadata", "progress"):
        assert f'"{column}"' not in rows
    assert len(queries) <= 12
    assert text.count('class="pgjobs-task"') == 50
    assert len(text) < 150_000


def test_nothing_can_be_added_changed_or_deleted(admin_client: Client) -> None:
    job_id, worker_id = make_job(), make_worker()
    assert admin_client.get(page("job", "add")).status_code == 403
    assert admin_client.get(page("worker", "add")).status_code == 403
    for model, row_id in (("job", job_id), ("worker", worker_id)):
        for address in (
            page(model, "add"),
            page(model, "change", row_id),
            page(model, "delete", row_id),
        ):
            assert admin_client.post(address, {"_save": "1", "post": "yes"}).status_code == 403
        action = {"action": "delete_selected", "_selected_action": str(row_id), "post": "yes"}
        admin_client.post(page(model, "changelist"), action)
    assert Job.objects.count() == Worker.objects.count() == 1
    text = read(admin_client, "job", "change", job_id) + read(admin_client, "job", "changelist")
    add = page("job", "add")
    for button in ('name="_save"', "deletelink", f'href="{add}', "<textarea"):
        assert button not in text


def test_who_may_view_may_view_and_nobody_else(client: Client) -> None:
    job_id = make_job()
    user = User.objects.create_user("viewer", password="x", is_staff=True)
    client.force_login(user)
    addresses = [page("job", "changelist"), page("job", "change", job_id)]
    assert [client.get(address).status_code for address in addresses] == [403, 403]
    user.user_permissions.add(Permission.objects.get(codename="view_job"))
    assert [client.get(address).status_code for address in addresses] == [200, 200]
    assert client.get(page("worker", "changelist")).status_code == 200
    client.logout()
    assert [client.get(address).status_code for address in addresses] == [302, 302]


def test_workers_can_be_looked_at(admin_client: Client) -> None:
    worker_id = make_worker(HOSTILE, queues=["a", HOSTILE], version=HOSTILE, task_paths=[HOSTILE])
    make_worker("other:1", ended_at=NOW, lost=True)
    make_running_job(worker_id)
    for text in (
        read(admin_client, "worker", "changelist"),
        read(admin_client, "worker", "change", worker_id),
    ):
        assert "&lt;script&gt;" in text
        assert "<script>alert" not in text


def test_no_page_imports_what_a_row_names(
    admin_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "canary_of_admin.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    error = {"exception_class": "canary_of_admin.Api.Boom", "message": "m", "traceback": "t"}
    job_id = make_job("canary_of_admin.f", errors=[error], status="failed", finished_at=NOW)
    assert "Api.Boom" in admin_client.get(reverse("admin:pgjobs_job_failures")).content.decode()
    read(admin_client, "job", "changelist")
    read(admin_client, "job", "change", job_id)
    read(admin_client, "job", "history", job_id)
    assert "canary_of_admin" not in sys.modules


def test_the_index_shows_both(admin_client: Client) -> None:
    text = admin_client.get(reverse("admin:app_list", args=["pgjobs"])).content.decode()
    assert page("job", "changelist") in text
    assert page("worker", "changelist") in text
    assert {Job, Worker} <= set(admin.site._registry)
