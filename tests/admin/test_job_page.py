"""The page of one job: what it shows of any row, to whom, and at what cost."""

from __future__ import annotations

import json
import re
from html import escape, unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from psycopg import sql

from django_pgjobs.declaring import registry
from django_pgjobs.declaring.registry import discover_tasks_once
from django_pgjobs.models import ConcurrencyLimit, Dependency, Job, Pause
from tests.factories import make_job, make_jobs, make_running_job
from tests.odd_rows import admit_odd_values
from tests.test_admin import HOSTILE, NOW, ROWS, page, read

pytestmark = pytest.mark.django_db

LATER = sql.SQL("now() + interval '1 hour'")
SECRETS = {"user": "anna", "password": "s3cret-value"}


def job_page(client: Client, job_id: Any, **query: str) -> str:
    """Return the page of a job."""
    return read(client, "job", "change", job_id, **query)


def user_with(client: Client, *codenames: str) -> User:
    """Log in a member of the staff who has these permissions."""
    user = User.objects.create_user("staff", password="x", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="pgjobs", codename__in=codenames)
    )
    client.force_login(user)
    return user


def last_entry() -> LogEntry:
    """Return the newest entry of the admin's log."""
    entry = LogEntry.objects.order_by("-pk").first()
    assert entry is not None
    return entry


def test_the_page_shows_what_a_job_is(admin_client: Client) -> None:
    ConcurrencyLimit.objects.create(pattern="shop:*", max_running=5)
    job_id = make_job(
        queue_name="mail",
        priority=7,
        concurrency_key="shop:1",
        rate_limit_keys="shopify\nmail:1",
        unique_key="k",
        tags=["nightly"],
        correlation_id="req-1",
        timeout=90,
        metadata={"enqueued_by": "anna"},
    )
    text = unescape(job_page(admin_client, job_id))
    for shown in (
        f"tests.tasks.add #{job_id}", "mail", "shop:1", "5 at a time, by the limit “shop:*”",
        "shopify", "mail:1", "nightly", "req-1", "1 min 30 s", "anna", "Enqueued",
    ):  # fmt: skip
        assert shown in text
    assert "?q=key%3A%22shop%3A1%22" in text


def test_the_trace_is_a_link(admin_client: Client, settings: Any) -> None:
    settings.PGJOBS = {"TRACE_URL": "https://traces.example/{correlation_id}"}
    job_id = make_job(correlation_id="a b/c")
    assert 'href="https://traces.example/a%20b%2Fc"' in job_page(admin_client, job_id)


def test_the_subject_leads_to_its_own_page(admin_client: Client, client: Client) -> None:
    group = Group.objects.create(name="editors")
    job_id = make_job(subject=f"auth.group:{group.pk}")
    address = f'href="{reverse("admin:auth_group_change", args=[group.pk])}"'
    assert address in job_page(admin_client, job_id)
    user_with(client, "view_job")
    assert address not in job_page(client, job_id)
    for subject in ("auth.nothing:1", "nonsense", HOSTILE):
        assert "<script>alert" not in job_page(admin_client, make_job(subject=subject))


def test_the_page_says_why_a_job_does_not_run(admin_client: Client) -> None:
    """S1.2."""
    Pause.objects.create(kind="queue", name="default", reason="PDF bug", paused_by="anna")
    first = make_running_job(concurrency_key="shop:1")
    job_id = make_job(concurrency_key="shop:1")
    text = unescape(job_page(admin_client, job_id))
    assert "Why is it not running?" in text
    assert "because: PDF bug" in text
    assert f'href="{page("job", "change", first.id)}"' in text
    assert "What is it doing?" in job_page(admin_client, first.id)
    assert "Why is it" not in job_page(admin_client, make_job(status="failed", finished_at=NOW))


@pytest.mark.parametrize(("kind", "name"), [("queue", "default"), ("task", "tests.tasks.add")])
def test_what_is_paused_is_resumed_from_the_page(
    admin_client: Client, client: Client, kind: str, name: str
) -> None:
    Pause.objects.create(kind=kind, name=name)
    job_id = make_job()
    here = page("job", "change", job_id)
    query = urlencode({"kind": kind, "name": name, "next": here})
    address = f"{reverse('admin:pgjobs_queue_resume')}?{query}"
    assert f'href="{escape(address)}"' in job_page(admin_client, job_id)
    assert "Resume" in admin_client.get(address).content.decode()
    user_with(client, "view_job")
    assert reverse("admin:pgjobs_queue_resume") not in job_page(client, job_id)


def test_dependencies_are_shown_both_ways(admin_client: Client) -> None:
    first, second = make_job(), make_job("tests.tasks.late", hold="dependencies", waits_for=1)
    Dependency.objects.create(predecessor_id=first, job_id=second, after_failure="cancel")
    assert "Waited for by" in job_page(admin_client, first)
    text = job_page(admin_client, second)
    assert "Waits for" in text
    assert f'href="{page("job", "change", first)}"' in text


def test_the_progress_is_drawn(admin_client: Client) -> None:
    job = make_running_job(progress={"done": 3, "total": 12, "message": "pages"})
    text = job_page(admin_client, job.id)
    assert '<progress max="100" value="25"' in text
    assert "pages" in text


@pytest.mark.parametrize(
    "progress",
    [
        [],
        "1",
        1,
        {"done": "x"},
        {"done": 1, "total": 0},
        {"done": 10**400, "total": 1},
        {"done": -5, "total": 1e308},
        {},
    ],
    ids=repr,
)
def test_any_progress_can_be_looked_at(admin_client: Client, progress: Any) -> None:
    job_page(admin_client, make_running_job(progress=progress).id)


def test_the_path_of_the_task_breaks_between_words_wherever_it_stands(
    admin_client: Client,
) -> None:
    job_id = make_job("shop.send_mail", on_failure={"task_path": "shop.tell_all"})
    text = job_page(admin_client, job_id)
    drawn = "shop.<wbr>send_<wbr>mail"
    assert f"<h1>{drawn} #{job_id}</h1>" in text
    crumbs = text.partition('class="breadcrumbs"')[2]
    assert f"{drawn} #{job_id}" in crumbs.partition("<h1>")[0]
    assert f">{drawn}</a>" in text
    assert "shop.<wbr>tell_<wbr>all" in text
    assert "<title>shop.send_mail #" in text


def test_attempts_are_shown_newest_first(admin_client: Client) -> None:
    errors = [
        {
            "attempt": number,
            "exception_class": f"shop.Error{number}",
            "message": "m" * 300,
            "worker": "web-1:1",
            "started_at": "2026-01-01T00:00:00+00:00",
            "failed_at": "2026-01-01T00:00:04+00:00",
            "traceback": f'  File "/srv/shop/tasks.py", line {number}, in f\n    raise',
        }
        for number in (1, 2)
    ]
    text = job_page(admin_client, make_job(status="failed", errors=errors))
    assert text.index("shop.Error2") < text.index("shop.Error1")
    assert text.count('<details class="pgjobs-attempt" open') == 1
    for shown in ("ran 4.0 s", "web-1:1", "line 2, in f"):
        assert shown in text


@pytest.mark.parametrize(
    ("status", "attempts", "numbers", "shown"),
    [
        ("failed", 2, (1, 2, 1, 2), "2 1 | 2 1"),
        ("failed", 1, (1, 1, 1), "1 | 1 | 1"),
        ("failed", 4, (1, 2, 3, 4), "4 3 2 1"),
        ("ready", 0, (1, 2), "| 2 1"),
        ("ready", 1, (1, 2, 1), "1 | 2 1"),
        ("running", 2, (1,), "1"),
        ("running", 1, (1,), "| 1"),
        ("successful", 1, (1,), "| 1"),
        ("failed", 2, (None, 1, None, 2), "2 ? 1 ?"),
    ],
)
def test_attempts_before_new_ones_were_given_are_set_apart(
    admin_client: Client, status: str, attempts: int, numbers: tuple[int | None, ...], shown: str
) -> None:
    errors = [{"attempt": number, "message": "m"} for number in numbers]
    text = job_page(admin_client, make_job(status=status, attempts=attempts, errors=errors))
    drawn = re.findall(r"<strong>Attempt ?(\d*)|>(Before) the job got new attempts<", text)
    assert " ".join(number or ("|" if mark else "?") for number, mark in drawn) == shown


@pytest.mark.parametrize(
    "errors",
    [
        [
            {"attempt": "x", "started_at": "0001-01-01T00:00:00+00:00", "failed_at": "9999-12-31"},
            {"message": "m", "failed_at": "2026-13-45T00:00:00+00:00"},
        ],
        [{"exception_class": 5, "message": ["a"], "traceback": {"a": 1}}],
        [{"traceback": "x" * 900_000}] * 3,
        [[]] * 1_000,
        sql.SQL("(repeat('[', 5000) || repeat(']', 5000))::jsonb"),
        sql.SQL("('[1' || repeat('0', 5000) || ']')::jsonb"),
        sql.SQL("'null'::jsonb"),
    ],
    ids=["times", "types", "long", "many", "deep", "number", "null"],
)
def test_any_errors_can_be_looked_at(admin_client: Client, errors: Any) -> None:
    admit_odd_values()
    job_id = make_job(status="failed", errors=errors)
    assert len(job_page(admin_client, job_id)) < 150_000
    assert admin_client.get(page("job", "download", job_id)).status_code == 200


def test_the_newest_runs_of_the_task_are_shown(admin_client: Client) -> None:
    done = {"status": "successful", "finished_at": NOW}
    earlier = sql.SQL("now() - interval '4 seconds'")
    ids = make_jobs(25, last_attempted_at=earlier, **done)
    make_jobs(3, "tests.tasks.other", last_attempted_at=NOW, **done)
    text = job_page(admin_client, ids[-1])
    runs = text.split('<ul class="pgjobs-runs">')[1].split("</ul>")[0]
    assert runs.count("<li>") == 20
    assert f'href="{page("job", "change", ids[-1])}"' in runs
    assert "4.0 s at the median" in text
    assert "None of the newest 10,000 finished" in job_page(
        admin_client, make_job("tests.tasks.never")
    )


def test_gaps_are_never_negative(admin_client: Client) -> None:
    """The clocks of servers differ, and a person may run a job before its time."""
    past = sql.SQL("now() - interval '1 day'")
    job_id = make_job(
        status="successful", attempts=1, enqueued_at=NOW, run_after=LATER,
        started_at=past, last_attempted_at=past, finished_at=past,
    )  # fmt: skip
    text = job_page(admin_client, job_id)
    gaps = text.split('<ol class="pgjobs-timeline">')[1].split("</ol>")[0]
    assert "-" not in gaps.replace("pgjobs-gap", "").replace("pgjobs-step", "").split("<time")[0]
    assert gaps.count('<span class="pgjobs-gap">0 ms</span>') == 2


@pytest.mark.parametrize("since", ["ready_at", "run_after"])
def test_what_was_requeued_or_due_later_has_not_waited_since_its_enqueue(
    admin_client: Client, since: str
) -> None:
    begin = sql.SQL("now() - interval '2 s'")
    job_id = make_job(
        status="successful", attempts=1, enqueued_at=sql.SQL("now() - interval '1 day'"),
        started_at=begin, last_attempted_at=begin, finished_at=sql.SQL("now()"),
        **{since: sql.SQL("now() - interval '5 s'")},
    )  # fmt: skip
    line = job_page(admin_client, job_id).split('<ol class="pgjobs-timeline">')[1].split("</ol>")[0]
    assert "Ready" in line.split("Enqueued")[1].split("Started")[0]
    assert '<span class="pgjobs-gap">3.0 s</span>' in line


def test_a_task_that_nobody_declares_is_marked(admin_client: Client) -> None:
    discover_tasks_once()
    badge = "task not found in this deployment"
    assert badge in job_page(admin_client, make_job("nobody.tasks.f"))
    assert badge not in job_page(admin_client, make_job())


def test_as_long_as_no_tasks_are_loaded_nothing_is_said_of_them(admin_client: Client) -> None:
    registry._discovered.cache_clear()
    assert "task not found" not in job_page(admin_client, make_job("nobody.tasks.f"))


def test_a_job_that_is_gone_has_a_friendly_page(admin_client: Client) -> None:
    for job_id in ("999999", "0", "-1", "abc", "9" * 30, "1_0", "a/b", "\u0663", HOSTILE):
        response = admin_client.get(page("job", "change", job_id))
        assert response.status_code == 404
        text = response.content.decode()
        assert "deleted 7 d after their end" in text
        assert "<script>alert" not in text
    assert admin_client.get(page("job", "download", "999999")).status_code == 404
    assert admin_client.get(page("job", "copy", "999999")).status_code == 404


def test_a_job_that_goes_while_its_page_is_made_has_that_page_too(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(job: Job) -> None:
        raise LookupError

    monkeypatch.setattr(Job, "explain", gone)
    assert admin_client.get(page("job", "change", make_job())).status_code == 404


def test_a_page_takes_few_queries_and_little_text(admin_client: Client) -> None:
    make_jobs(50, status="successful", finished_at=NOW)
    for job_id in (
        make_job(args=[1], status="failed", finished_at=NOW),
        make_job(),
        make_job(due_at=LATER),
        make_running_job().id,
        make_job(concurrency_key="shop:1"),
    ):
        with CaptureQueriesContext(connection) as queries:
            text = job_page(admin_client, job_id)
        assert len(queries) <= 13
        assert len(text) < 60_000


@pytest.mark.parametrize("name", ROWS)
def test_every_row_has_a_page_and_a_download(admin_client: Client, name: str) -> None:
    admit_odd_values()
    job_id = make_job(**ROWS[name])
    assert len(job_page(admin_client, job_id)) < 150_000
    response = admin_client.get(page("job", "download", job_id))
    assert (response.status_code, response["Content-Type"]) == (200, "application/json")
    assert json.loads(response.content)["id"] == job_id


def test_secrets_are_masked_everywhere(admin_client: Client) -> None:
    job_id = make_job(
        args=[SECRETS], kwargs=SECRETS, metadata=SECRETS, result=SECRETS, status="successful",
        progress={"token": "s3cret-value"},
    )  # fmt: skip
    assert "s3cret-value" not in job_page(admin_client, job_id)
    download = admin_client.get(page("job", "download", job_id)).content.decode()
    assert "s3cret-value" not in download
    assert "anna" in download
    assert not LogEntry.objects.exists()


def test_who_may_reveal_sees_secrets_and_leaves_a_trace(admin_client: Client) -> None:
    job_id = make_job(kwargs=SECRETS)
    text = job_page(admin_client, job_id, reveal="1")
    assert "s3cret-value" in text
    entry = last_entry()
    assert (entry.object_id, entry.change_message) == (str(job_id), "reveal")
    assert (
        "s3cret-value"
        in admin_client.get(page("job", "download", job_id), {"reveal": "1"}).content.decode()
    )
    # The page that shows them is not fetched again and again.
    assert 'id="pgjobs-live" data-pgjobs-done' in text


def test_who_may_only_view_cannot_reveal(client: Client) -> None:
    user_with(client, "view_job")
    job_id = make_job(kwargs=SECRETS)
    assert "reveal=1" not in job_page(client, job_id)
    for name in ("change", "download"):
        response = client.get(page("job", name, job_id), {"reveal": "1"})
        assert response.status_code == 403
        assert b"s3cret-value" not in response.content
    assert not LogEntry.objects.exists()
